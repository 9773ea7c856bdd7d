//go:build prometheus

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Tests of the dashboard and the alerts with a real Prometheus that scrapes the built binary. `make
// test-monitoring` installs Prometheus and runs them.

const binary = "../../build/tandem"

// start runs a program until the test ends. It waits for a line that matches ready, and returns the program
// and the groups of the match: the addresses that the program has chosen. An address chosen by the test might
// be taken by another program before it is used.
func start(t *testing.T, ready *regexp.Regexp, name string, args ...string) (cmd *exec.Cmd, found []string) {
	t.Helper()
	cmd = exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, args, tail(log.String()))
		}
	})
	lines := bufio.NewReader(io.TeeReader(out, &log))
	for found == nil {
		line, err := lines.ReadString('\n')
		if err != nil {
			close(ended)
			t.Fatalf("%s %v: %v before it was ready", name, args, err)
		}
		found = ready.FindStringSubmatch(line)
	}
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, lines)
	}()
	return cmd, found[1:]
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

var (
	patience = regexp.MustCompile(`(?m)^(\s+)for: .*$`)
	window   = regexp.MustCompile(`\[(5|10)m\]`)
	listens  = regexp.MustCompile(`"Listening on" .*address=(\S+)`)
)

// hasty are the rules with seconds instead of minutes. Nothing else is changed.
func hasty(rules []byte) []byte {
	return window.ReplaceAll(patience.ReplaceAll(rules, []byte("${1}for: 1s")), []byte("[15s]"))
}

// prometheus starts a Prometheus that scrapes a router each second with the hasty rules. It returns its
// address.
func prometheus(t *testing.T, admin string) string {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"+
		"  - {job_name: tandem, static_configs: [{targets: [%q]}]}\n", admin)
	for name, text := range map[string][]byte{"rules.yml": hasty(rules), "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, at := start(t, listens, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	return "http://" + at[0]
}

// ask requests JSON.
func ask(t *testing.T, at string, into any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// within repeats a check until it holds.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not within %v: %s", limit, what)
			return
		}
	}
}

// Every query of the dashboard returns data under load.
func TestEveryPanelHasData(t *testing.T) {
	r := newFleet(t)
	r.traffic(8)
	prom := prometheus(t, r.admin)
	for _, v := range variables {
		within(t, time.Minute, "values of the variable "+v.name, func() bool {
			var got struct{ Data []string }
			err := ask(t, prom+"/api/v1/label/"+v.name+"/values?match[]="+v.metric, &got)
			return err == nil && len(got.Data) > 0
		})
	}
	for _, row := range rows {
		for _, p := range row.panels {
			for _, q := range p.queries {
				expr := strings.NewReplacer("$__rate_interval", "15s", "$job", ".*", "$model", ".*", "$replica",
					".*").Replace(q.expr)
				within(t, time.Minute, p.title+": "+expr, func() bool {
					var got struct {
						Data struct {
							Result []struct {
								Value [2]any
							}
						}
					}
					err := ask(t, prom+"/api/v1/query?query="+url.QueryEscape(expr), &got)
					for _, s := range got.Data.Result {
						if s.Value[1] != "NaN" {
							return err == nil
						}
					}
					return false
				})
			}
		}
	}
}
