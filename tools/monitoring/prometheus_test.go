//go:build prometheus

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The dashboard and the alerts with a real Prometheus that scrapes the built binary: `make test-monitoring` installs
// one and runs this.

const binary = "../../build/tandem"

// start runs a program until the test ends, and returns the first line that it prints.
func start(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Cancel = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, args, tail(log.String()))
		}
	})
	lines := bufio.NewReader(out)
	line := ""
	if strings.HasSuffix(name, "tandem") {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, log.String())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return line
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// prometheus scrapes a router each second, under rules whose patience is made short, and returns its address.
func prometheus(t *testing.T, admin string) string {
	t.Helper()
	dir, at := t.TempDir(), free(t)
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	short := regexp.MustCompile(`(?m)^(\s+)for: .*$`).ReplaceAll(rules, []byte("${1}for: 1s"))
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"+
		"  - {job_name: tandem, static_configs: [{targets: [%q]}]}\n", admin)
	for name, text := range map[string][]byte{"rules.yml": short, "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	return "http://" + at
}

// ask gets JSON.
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

// within asks again until it holds.
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
	r := newRouter(t, "")
	r.traffic()
	prom := prometheus(t, r.admin)
	for _, row := range rows {
		for _, p := range row.panels {
			for _, q := range p.queries {
				expr := strings.NewReplacer("$__rate_interval", "15s", "$job", ".*").Replace(q.expr)
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

// router is one before three engines a side, whose faults and configuration are the test's.
type router struct {
	t                  *testing.T
	front, admin, file string
	prefill, decode    []string // URLs
	controlP, controlD []string
	extra              string
}

func newRouter(t *testing.T, extra string) *router {
	t.Helper()
	r := &router{t: t, front: free(t), admin: free(t), file: filepath.Join(t.TempDir(), "tandem.yaml"), extra: extra}
	sim := func(urls, controls *[]string) {
		line := strings.Fields(start(t, binary, "sim", "--model", "m", "--listen", "127.0.0.1:0", "--events", "tcp://127.0.0.1:0", "--control", "127.0.0.1:0", "--enable-scale-out", "--lease", "30s"))
		*urls = append(*urls, line[0])
		for _, word := range line {
			if at, is := strings.CutPrefix(word, "control="); is {
				*controls = append(*controls, at)
			}
		}
	}
	for range 2 {
		sim(&r.prefill, &r.controlP)
	}
	for range 3 {
		sim(&r.decode, &r.controlD)
	}
	r.write("")
	start(t, binary, "serve", "--config", r.file)
	return r
}

// write makes the file; more is put behind it.
func (r *router) write(more string) {
	r.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %q\nadmin: {listen: %q}\nlocal: never\n%spools:\n", r.front, r.admin, r.extra)
	for pool, urls := range map[string][]string{"prefill": r.prefill, "decode": r.decode} {
		fmt.Fprintf(&b, "  %s:\n    replicas:\n", pool)
		for i, u := range urls {
			fmt.Fprintf(&b, "      - {name: %c%d, url: %q}\n", pool[0], i, u)
		}
	}
	if err := os.WriteFile(r.file, []byte(b.String()+more), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// fault makes an engine do something, told as JSON.
func (r *router) fault(control, what string) {
	r.t.Helper()
	resp, err := http.Post(control+"/fault", "application/json", strings.NewReader(what))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %s %s", what, resp.Status, text)
	}
}

// traffic sends streams, eight at a time, until the test ends.
func (r *router) traffic() {
	ctx, stop := context.WithCancel(context.Background())
	r.t.Cleanup(stop)
	for worker := range 8 {
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":20,"temperature":0,"messages":[{"role":"user","content":"%s %d"}]}`, strings.Repeat("some words of a prompt ", 60), (8*i+worker)%200)
				q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.front+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					return
				}
				resp, err := http.DefaultClient.Do(q)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
}

// firing lists the alerts that fire now.
func firing(t *testing.T, prom string) map[string]bool {
	t.Helper()
	var got struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	_ = ask(t, prom+"/api/v1/alerts", &got) // asked again
	all := map[string]bool{}
	for _, a := range got.Data.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = true
		}
	}
	return all
}

// Alerts fire by the fault that they are for. Those whose fault takes minutes, or much load, or is a bug of the
// router, stand in deploy/prometheus/rules.test.yml alone.
func TestAlertsFireByTheirFaults(t *testing.T) {
	r := newRouter(t, "routers: {peers: [\"http://127.0.0.1:1\"]}\ndecisions: {file: /dev/full}\n")
	prom := prometheus(t, r.admin)
	r.traffic()
	fires := func(alert string) {
		t.Helper()
		within(t, 90*time.Second, alert+" fires", func() bool { return firing(t, prom)[alert] })
		t.Logf("%s fired", alert)
	}
	time.Sleep(10 * time.Second)
	if all := firing(t, prom); all["TandemRequestsFail"] || all["TandemReplicaDown"] || all["TandemReplicaEjected"] || all["TandemReplicaSlow"] || all["TandemPairEjected"] || all["TandemConfigRejected"] {
		t.Errorf("without a fault these fire: %v", all)
	}
	fires("TandemPeerSilent")
	fires("TandemDecisionsUnwritten")

	r.write("nonsense: 1\n")
	fires("TandemConfigRejected")
	r.write("")

	r.fault(r.controlD[0], `{"kind":"slow","factor":20}`)
	fires("TandemReplicaSlow")
	r.fault(r.controlD[0], `{"kind":"clear"}`)

	r.fault(r.controlP[0], `{"kind":"null_params","count":-1}`)
	fires("TandemTransferParamsRefused")
	r.fault(r.controlP[0], `{"kind":"clear"}`)

	r.fault(r.controlD[1], `{"kind":"cut_path","from":"127.0.0.1"}`)
	fires("TandemPairEjected")
	r.fault(r.controlD[1], `{"kind":"clear"}`)

	r.fault(r.controlD[2], `{"kind":"fail","count":-1}`) // the first one is hardly asked: it was slow a minute ago
	fires("TandemReplicaEjected")
	for _, d := range r.controlD[:2] {
		r.fault(d, `{"kind":"fail","count":-1}`)
	}
	fires("TandemRequestsFail")
	for _, d := range r.controlD {
		r.fault(d, `{"kind":"clear"}`)
	}
	for _, d := range r.controlD {
		r.fault(d, `{"kind":"die"}`)
	}
	fires("TandemReplicaDown")
	fires("TandemNotReady")
}
