package orchestrator

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// sixEngine is a simulated engine at ::1, also with its KV transfer port.
func sixEngine(t *testing.T, name string) *enginesim.Server {
	t.Helper()
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	side, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	port := side.Addr().(*net.TCPAddr).Port
	side.Close()
	e, err := enginesim.Start(enginesim.Options{
		Listener: ln, BaseURL: "http://" + ln.Addr().String(),
		Core: core.Config{Host: "::1", Port: port, EngineID: name},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// Both listeners, both engines and the KV transfer between them use IPv6 addresses.
func TestEverythingByIPv6(t *testing.T) {
	p, d := sixEngine(t, "p"), sixEngine(t, "d")
	cfg := config.Default()
	cfg.Local = config.LocalNever
	cfg.Listen, cfg.Admin.Listen = "[::1]:0", "[::1]:0"
	cfg.Pools.Prefill.Replicas = []config.Replica{{URL: p.URL()}}
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: d.URL()}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	o, err := New(cfg, Options{NoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- o.Serve(ctx, l, o.Admin()) }()
	defer func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	admin := "http://" + l.Admin.Addr().String()
	until(t, "both replicas", func() bool { return answerAt(t, admin+"/readyz", "") == http.StatusOK })
	body := `{"model":"sim","max_tokens":4,"prompt":"` + words(120) + `"}`
	if status := answerAt(t, "http://"+l.Front.Addr().String()+"/v1/completions", body); status != 200 {
		t.Fatalf("status %d", status)
	}
	if rec := o.ring.Newest(1)[0]; rec.Mode != "split" || rec.Attempts != 1 {
		t.Errorf("mode %s in %d attempts, want split in 1", rec.Mode, rec.Attempts)
	}
}

// answerAt sends a POST with the body, or a GET if it is "", and returns the status.
func answerAt(t *testing.T, url, body string) int {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
