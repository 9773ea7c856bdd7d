package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// When spans go to standard output, a program reads it: each line is a span, and the log states the
// router's addresses.
func TestSpansHaveStandardOutputToThemselves(t *testing.T) {
	for _, c := range []struct{ name, config, variable string }{
		{"by the file", "tracing: {exporter: stdout}\n", ""},
		{"by the environment", "", "console"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_EXPORTER", c.variable)
			stdout, log := served(t, c.config)
			if !regexp.MustCompile(`level=INFO msg="tandem serves" front=127\.0\.0\.1:\d+ admin=127\.0\.0\.1:\d+`).
				MatchString(log) {
				t.Errorf("the log does not say where it serves:\n%s", log)
			}
			lines := strings.SplitSeq(strings.TrimSuffix(stdout, "\n"), "\n")
			for line := range lines {
				var span struct{ Name string }
				if err := json.Unmarshal([]byte(line), &span); err != nil || span.Name == "" {
					t.Errorf("%v: %q is no span", err, line)
				}
			}
		})
	}
}

// Without spans, standard output has the one line that scripts wait for.
func TestStandardOutputSaysWhereItServes(t *testing.T) {
	for _, config := range []string{"", "tracing: {exporter: none}\n"} {
		stdout, log := served(t, config)
		want := regexp.MustCompile(`^tandem serves on 127\.0\.0\.1:\d+, admin on 127\.0\.0\.1:\d+\n$`)
		if !want.MatchString(stdout) {
			t.Errorf("standard output says %q", stdout)
		}
		if strings.Contains(log, "tandem serves") {
			t.Errorf("the log also has the address:\n%s", log)
		}
	}
}

// If the address is in use, for example by an engine on the same machine, the error says how to choose
// another address.
func TestAnAddressThatIsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, flags := range [][]string{
		{"--listen", ln.Addr().String(), "--admin", "off"},
		{"--listen", "127.0.0.1:0", "--admin", ln.Addr().String()},
	} {
		var complaint bytes.Buffer
		args := append([]string{"serve", "--decode", "127.0.0.1:1"}, flags...)
		if code := run(t.Context(), args, io.Discard, &complaint); code != 1 ||
			!strings.Contains(complaint.String(), syscall.EADDRINUSE.Error()) ||
			!strings.Contains(complaint.String(), "with --listen or --admin") {
			t.Errorf("%v: code %d, %s", flags, code, complaint.String())
		}
	}
}

var listensOn = regexp.MustCompile(`tandem serves(?: on |" front=)([0-9.:]+)`)

// served runs a router without engines, sends it a request, and ends it.
func served(t *testing.T, config string) (stdout, log string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	config += "pools: {decode: {replicas: [\"http://127.0.0.1:1\"]}}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	both, front := io.Pipe()
	var out, errs bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", file},
			io.MultiWriter(&out, front), io.MultiWriter(&errs, front))
		front.Close()
	}()
	lines := bufio.NewScanner(both)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := listensOn.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		go func() { // reads the rest, so that a full pipe does not block the router
			_, _ = io.Copy(io.Discard, both)
		}()
		resp, err := http.Post("http://"+m[1]+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"m","prompt":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		break
	}
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, errs.String())
	}
	return out.String(), errs.String()
}
