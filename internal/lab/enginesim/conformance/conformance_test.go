package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/conformance"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

func captures(t *testing.T) []conformance.Exchange {
	t.Helper()
	all, err := conformance.Captures()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func start(t *testing.T) *enginesim.Server {
	t.Helper()
	s, err := enginesim.Start(enginesim.Options{
		Model: "another-name", ScaleOut: true, ZeroLatency: true, EventsEndpoint: "tcp://127.0.0.1:0",
		Topic: "kv@p", HandshakeTimeout: 50 * time.Millisecond,
		Core: core.Config{BlockSize: 32, Blocks: 8192, MaxModelLen: 4096, Vocab: 2048},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The simulator conforms as a prefill and as a decode server, including their deaths.
func TestConforms(t *testing.T) {
	p, d := start(t), start(t)
	all := captures(t)
	r := conformance.Run(t.Context(),
		conformance.Target{URL: p.URL(), Decode: d.URL(), Model: "another-name", EndPrefill: p.Close}, all)
	if r.Asked != len(all) || len(r.Skipped) != 0 {
		t.Errorf("played %d of %d exchanges, skipped %q", r.Asked, len(all), r.Skipped)
	}
	for _, d := range r.Differences {
		t.Error(d)
	}
	if d.Dead() == nil {
		t.Error("the decode server is not dead")
	}
}

// Without the deadly exchanges, one lease is left: no answer has its params.
func TestGivesBack(t *testing.T) {
	p, d := start(t), start(t)
	r := conformance.Run(t.Context(), conformance.Target{URL: p.URL(), Decode: d.URL(), Model: "another-name"},
		captures(t))
	if len(r.Differences) > 0 || len(r.Skipped) != 4 || d.Dead() != nil {
		t.Errorf("differences %v, skipped %q, decode server dead: %v", r.Differences, r.Skipped, d.Dead())
	}
	deadline := time.Now().Add(5 * time.Second)
	for p.Stats()[0].Leases > 1 || d.HeldBlocks() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d leases are left, and the decode server holds %d blocks", p.Stats()[0].Leases, d.HeldBlocks())
		}
		time.Sleep(time.Millisecond)
	}
}

// TANDEM_CONFORMANCE_URL and _MODEL name an engine to test instead of the simulator.
func TestEngineConforms(t *testing.T) {
	target := conformance.Target{
		URL: os.Getenv("TANDEM_CONFORMANCE_URL"), Model: os.Getenv("TANDEM_CONFORMANCE_MODEL"),
	}
	if target.URL == "" {
		t.Skip("TANDEM_CONFORMANCE_URL names no engine")
	}
	for _, d := range conformance.Run(t.Context(), target, captures(t)).Differences {
		t.Error(d)
	}
}

// Every change of an answer is reported as a difference.
func TestSeesDifferences(t *testing.T) {
	all := captures(t)
	named := func(name string) conformance.Exchange {
		return all[slices.IndexFunc(all, func(x conformance.Exchange) bool { return x.Name == name })]
	}
	answer, refused := named("the same un-split"), named("temperature below 0")
	invalid := named("temperature text")
	for _, c := range []struct {
		name, what string
		x          conformance.Exchange
		change     func(string) string
		status     int
		header     string
	}{
		{"nothing", "", answer, strings.Clone, 200, ""},
		{"status", "status", answer, strings.Clone, 201, ""},
		{"header", "headers", answer, strings.Clone, 200, "more"},
		{
			"key", "body", answer, func(s string) string { return strings.Replace(s, `"object"`, `"objekt"`, 1) }, 200,
			"",
		},
		{
			"type", "body", answer, func(s string) string { return strings.Replace(s, `"index":0`, `"index":0.5`, 1) },
			200, "",
		},
		{"order", "body", answer, func(s string) string { return `{"last":1,` + s[1:] }, 200, ""},
		{"same refusal", "", refused, strings.Clone, 400, ""},
		{
			"words", "text", refused,
			func(s string) string { return strings.Replace(s, "non-negative", "positive", 1) }, 400, "",
		},
		{
			"place", "text", invalid,
			func(s string) string { return strings.Replace(s, "'body.temperature'", "'body.top_p'", 1) }, 400, "",
		},
		{
			"number", "text", invalid,
			func(s string) string { return strings.Replace(s, "1 validation error", "2 validation errors", 1) }, 400,
			"",
		},
		{"accepted", "status", refused, strings.Clone, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct{ Model string }
				if json.NewDecoder(r.Body).Decode(&body); body.Model != "mine" {
					t.Errorf("the request is for model %q", body.Model)
				}
				raw(t, w, c.status, c.header, c.x.Headers, c.change(c.x.Body))
			}))
			defer s.Close()
			r := conformance.Run(t.Context(), conformance.Target{URL: s.URL, Model: "mine"},
				[]conformance.Exchange{c.x})
			if c.what == "" && len(r.Differences) > 0 ||
				c.what != "" && (len(r.Differences) != 1 || r.Differences[0].What != c.what) {
				t.Errorf("differences %v, want %q", r.Differences, c.what)
			}
		})
	}
}

// raw answers with headers in the capture's spelling and order.
func raw(t *testing.T, w http.ResponseWriter, status int, more string, headers [][2]string, body string) {
	t.Helper()
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, h := range headers {
		if h[0] != "content-length" {
			fmt.Fprintf(rw, "%s: %s\r\n", h[0], h[1])
		} else {
			fmt.Fprintf(rw, "content-length: %d\r\n", len(body))
		}
	}
	if more != "" {
		fmt.Fprintf(rw, "%s: x\r\n", more)
	}
	fmt.Fprintf(rw, "\r\n%s", body)
	rw.Flush()
}
