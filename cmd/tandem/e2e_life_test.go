//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGTERM: the router refuses new requests, lets running streams end, and exits with code 0 soon after.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	streams := f.longStreams(4)
	f.router.signal(syscall.SIGTERM)
	f.draining()
	pause(500 * time.Millisecond) // lets the streams continue for a while
	f.hurry(streams)
	if code := f.router.exit(patience(10 * time.Second)); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f.freed(patience(2 * time.Second))
}

// SIGTERM with streams that last longer than the drain time: the streams get an error, and the process
// still ends in time.
func TestDrainCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, extra: "timeouts: {drain: 1s}\n"})
	streams := f.longStreams(4)
	began := time.Now()
	f.router.signal(syscall.SIGTERM)
	f.draining()
	if code := f.router.exit(patience(5 * time.Second)); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("ended after %v with a drain time of 1 s", time.Since(began).Round(time.Millisecond))
	for _, s := range streams {
		if v, why := s.judge(); v != clearError || !s.got.done {
			t.Errorf("verdict %v, end marker %v: %s", v, s.got.done, why)
		}
	}
	f.freed(patience(2 * time.Second))
}

// draining waits until the front refuses new requests, while the admin listener states the reason.
func (f *fleet) draining() {
	f.t.Helper()
	w := newWriter(8)
	eventually(f.t, patience(2*time.Second), func() error {
		client := newClient()
		defer client.CloseIdleConnections()
		got := ask(f.t.Context(), client, f.front, w.next(2), nil)
		if got.status == 503 && got.failed != nil && strings.Contains(got.failed.Message, "shutting down") ||
			errors.Is(got.err, syscall.ECONNREFUSED) {
			return nil
		}
		return fmt.Errorf("a new request was served: %d %s", got.status, fmt.Sprint(got.err))
	})
	status, h := f.health()
	if status != http.StatusServiceUnavailable || h.Ready || len(h.Why) == 0 || h.Why[0] != "shutting down" {
		f.t.Errorf("/readyz: %d %+v", status, h)
	}
}

// freed waits until no engine holds a block.
func (f *fleet) freed(within time.Duration) {
	f.t.Helper()
	eventually(f.t, within, func() error {
		for _, e := range f.engines() {
			if n := f.series(e.url+"/metrics", "vllm:kv_cache_usage_perc"); n > 0 {
				return fmt.Errorf("%s: usage %v", e.id, n)
			}
		}
		return nil
	})
}

// With one request at a time, the cached tokens that a decision expects equal the cached tokens that the
// engine reports.
func TestPredictionsAreTrue(t *testing.T) {
	for _, local := range []string{"never", "auto"} {
		t.Run("local "+local, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t,
				setting{engines: []string{"--speed", "8b", "--speed-factor", "20", "--blocks", "8192"}, local: local})
			w := newWriter(9)
			rnd := rand.New(rand.NewPCG(1, 2))
			const requests = 150
			var conversation []map[string]string
			for i := range requests {
				q := w.next(1 + rnd.IntN(40))
				if i%5 == 0 { // a growing conversation
					conversation = append(conversation, message("user", " "+strings.Join(w.words(30), " ")))
					q = w.chat(20, conversation...)
				}
				got := f.check(q)
				if i%5 == 0 {
					conversation = append(conversation, message("assistant", got.texts[0]))
				}
			}
			f.wantTruth(requests)
		})
	}
}

// wantTruth compares the predictions in the decision records with the tokens that the engines reported.
func (f *fleet) wantTruth(requests int) {
	f.t.Helper()
	var records []struct {
		Mode      string `json:"mode"`
		Prompt    int    `json:"prompt_tokens"`
		Captured  int    `json:"captured_tokens"`
		Delivered int    `json:"delivered_tokens"`
		Reason    string `json:"reason"`
	}
	eventually(f.t, 2*time.Second, func() error {
		f.get(fmt.Sprintf("%s/debug/decisions?n=%d", f.admin, 2*requests), &records)
		if len(records) != requests {
			return fmt.Errorf("%d records", len(records))
		}
		return nil
	})
	right, hits := 0, 0
	modes := map[string]int{}
	for _, r := range records {
		modes[r.Mode]++
		if r.Captured == r.Delivered {
			right++
		} else {
			f.t.Logf("%s of %d tokens: captured %d, delivered %d: %s",
				r.Mode, r.Prompt, r.Captured, r.Delivered, r.Reason)
		}
		if r.Delivered > 0 {
			hits++
		}
	}
	f.t.Logf("%d of %d exact, %d with a hit, %v", right, requests, hits, modes)
	if float64(right) < 0.99*float64(requests) {
		f.t.Errorf("%d of %d predictions are exact", right, requests)
	}
	if hits < requests/2 {
		f.t.Errorf("only %d requests found cached tokens", hits)
	}
}

// The router starts without any running engine, reports each missing replica, and becomes ready when the
// engines start.
func TestEnginesAppearAfterTheRouter(t *testing.T) {
	t.Parallel()
	f := &fleet{
		t: t, set: setting{lease: 3 * time.Second, margin: time.Second, local: "never"}, client: newClient(),
		asker: newClient(), known: map[string]*reply{},
	}
	binary(t)
	t.Cleanup(f.client.CloseIdleConnections)
	t.Cleanup(f.asker.CloseIdleConnections)
	f.reference = newEngine(t, "reference", "", "--zero-latency")
	f.prefill = []*engine{{id: "p0", role: "prefill", url: freeURL(t)}}
	f.decode = []*engine{{id: "d0", role: "decode", url: freeURL(t)}}
	f.mount(f.yaml(f.prefill, f.decode))
	f.serve()
	f.notReady("p0", "d0")
	got := f.ask(t.Context(), newWriter(1).next(3))
	if v, why := judge(f.right(newWriter(1).next(3)), got); v != clearError ||
		got.status != http.StatusServiceUnavailable {
		t.Errorf("a request before any engine was running: %v %s", v, why)
	}
	for _, e := range f.decode {
		e.appear(t)
	}
	f.notReady("p0") // one pool is still missing
	for _, e := range f.prefill {
		e.appear(t)
	}
	f.ready(f.prefill, f.decode)
	if status, h := f.health(); status != http.StatusOK || !h.Ready {
		t.Errorf("/readyz: %d %+v", status, h)
	}
	f.settle()
	w := newWriter(2)
	for range 6 {
		f.check(w.next(5))
	}
	f.quiet(2 * time.Second)
}

// notReady waits until exactly these replicas are not ready, each with a reason that says what to do.
func (f *fleet) notReady(ids ...string) {
	f.t.Helper()
	eventually(f.t, patience(10*time.Second), func() error {
		status, h := f.health()
		if status != http.StatusServiceUnavailable || h.Ready || len(h.Why) == 0 {
			return fmt.Errorf("/readyz: %d %+v", status, h)
		}
		missing := 0
		for _, r := range h.Replicas {
			if !r.Ready {
				missing++
			}
		}
		for _, id := range ids {
			if ready, known, reason := h.of(id); ready || !known ||
				!strings.Contains(reason, "connection refused: see that the engine is running") {
				return fmt.Errorf("%s: ready %v because %q", id, ready, reason)
			}
		}
		if missing != len(ids) {
			return fmt.Errorf("%d replicas are not ready, want %d", missing, len(ids))
		}
		return nil
	})
}

// freeURL returns an address at which no process listens.
func freeURL(t *testing.T) string {
	t.Helper()
	// no connection has this source address, so no other process takes the port
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

// appear starts an engine at the address that was chosen before.
func (e *engine) appear(t *testing.T) {
	t.Helper()
	e.args = []string{"--role", e.role, "--control", "127.0.0.1:0", "--zero-latency", "--lease", "3s"}
	e.begin(t, "--listen", strings.TrimPrefix(e.url, "http://"), "--events", "tcp://127.0.0.1:0")
}

// The demonstration exits with 0 when every answer was right.
func TestDemoProcess(t *testing.T) {
	t.Parallel()
	p := start(t, "demo", "demo", "--requests", "20", "--speed", "4")
	if code := p.exit(patience(30 * time.Second)); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := p.out.String()
	if !strings.Contains(said, "summary: 20 requests, 0 wrong") ||
		!strings.Contains(said, "leases left      0") {
		t.Error(said)
	}
}

// The version is one line. The exit code distinguishes a usage error from a failure.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"version"}, 0, "tandem "},
		{[]string{"help"}, 0, "serve"},
		{nil, 2, "Usage"},
		{[]string{"srve"}, 2, `there is no command "srve"`},
		{[]string{"serve", "--nonsense"}, 2, "nonsense"},
		{[]string{"serve"}, 2, "no engines"},
		{[]string{"serve", "--prefill", "x"}, 2, "no decode engine"},
		{[]string{"serve", "--prefill", "p:8000", "--decode", "x"}, 2, `"x" is not the address of an engine`},
		{[]string{"serve", "--decode", "http://d:8000/v1"}, 2, "continues behind the port"},
		{[]string{"serve", "--decode", "d:8000", "--listen", "8000"}, 2, "is not host:port"},
		{[]string{"serve", "--decode", "d:8000", "--log-level", "loud"}, 2, `"loud" is not known`},
		{[]string{"serve", "--config", "/does/not/exist.yaml"}, 1, "exist.yaml"},
		{[]string{"check", "/does/not/exist.yaml"}, 1, "exist.yaml"},
	} {
		p := start(t, "tandem", c.args...)
		if code := p.exit(patience(5 * time.Second)); code != c.code || !strings.Contains(p.out.String(), c.said) {
			t.Errorf("%v: exit code %d, want %d; output\n%s", c.args, code, c.code, p.out.String())
		}
	}
}
