package enginesim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/memnet"
)

// legs is a prefill and a decode server in fake time, and a third one that answers without a split.
type legs struct {
	t           *testing.T
	p, d, whole *Server
	front       *http.Client
}

// inLegs runs story with three servers on an in-memory network. The servers' steps take 10 ms, and a
// failed handshake takes 5 s.
func inLegs(t *testing.T, decode core.Config, story func(l *legs)) {
	t.Helper()
	inLegsOf(t, core.Config{}, decode, story)
}

func inLegsOf(t *testing.T, prefill, decode core.Config, story func(l *legs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &memnet.Net{}
		transport := &http.Transport{DialContext: network.Dial, DisableKeepAlives: true}
		l := &legs{t: t, front: &http.Client{Transport: transport}}
		start := func(name string, c core.Config) *Server {
			ln, err := network.Listen("tcp", name+":8000")
			if err != nil {
				t.Fatal(err)
			}
			c.Host = name
			c.Port = 5600
			c.EngineID = "engine-of-" + name
			c.Cost = core.Cost{T0: 0.010, D0: 0.010}
			return startServer(t, Options{
				Listener: ln, BaseURL: "http://" + name + ":8000", Listen: network.Listen, Dial: network.Dial, Core: c,
			})
		}
		l.p = start("p0", prefill)
		l.d = start("d0", decode)
		l.whole = start("whole", core.Config{})
		story(l)
		time.Sleep(time.Minute) // leases expire
		for _, s := range []*Server{l.p, l.d} {
			if n := s.HeldBlocks(); n != 0 {
				t.Errorf("%s holds %d blocks at the end", s.URL(), n)
			}
			s.Close()
		}
		l.whole.Close()
	})
}

func (l *legs) post(s *Server, ids []uint32, maxTokens int, params string) (int, answer) {
	l.t.Helper()
	body := strings.NewReader(completionBody(ids, maxTokens, params))
	resp, err := l.front.Post(s.URL()+"/v1/completions", "application/json", body)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, a
}

// prefill runs leg 1. It removes the prefill engine's number of cached tokens from the params, so that the
// decode engine reports its own number.
func (l *legs) prefill(ids []uint32) string {
	l.t.Helper()
	status, a := l.post(l.p, ids, 1, askPrefill)
	if status != 200 || string(a.Params) == "null" {
		l.t.Fatalf("prefill leg: %d %+v", status, a)
	}
	cut := strings.Index(string(a.Params), `,"remote_prefill_cached_tokens"`)
	return string(a.Params[:cut]) + "}"
}

func (l *legs) right(ids []uint32) string {
	l.t.Helper()
	_, a := l.post(l.whole, ids, 8, "null")
	return a.text()
}

// counter returns the value of one series in the decode engine's /metrics.
func (l *legs) counter(name string) string {
	l.t.Helper()
	resp, err := l.front.Get(l.d.URL() + "/metrics")
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, name+"{") {
			return strings.Fields(line)[1]
		}
	}
	l.t.Fatalf("no series %s", name)
	return ""
}

const (
	failedTransfers     = "vllm:nixl_num_failed_transfers_total"
	failedNotifications = "vllm:nixl_num_failed_notifications_total"
)

// With a cut path, loads from the named peer fail after the configured time, and loads from other peers do
// not. After the repair all loads succeed.
func TestCutPathFailsLoads(t *testing.T) {
	const handshake = 5 * time.Second
	cases := []struct {
		from string
		slow time.Duration
		took time.Duration
		cut  bool
	}{
		{from: "", took: handshake, cut: true},
		{from: "p0", slow: time.Second, took: time.Second, cut: true},
		{from: "http://p0:8000", slow: time.Second, took: time.Second, cut: true},
		{from: "p0:5600", slow: time.Second, took: time.Second, cut: true},
		{from: "engine-of-p0", slow: time.Second, took: time.Second, cut: true},
		{from: "p1"},
		{from: "http://p0", slow: time.Second, took: time.Second, cut: true}, // all engines on that host
		{from: "http://p1:8000"},
		{from: "http://p0:8001"}, // another engine on that host
		{from: "p0:5601"},
	}
	for _, c := range cases {
		t.Run("from "+c.from, func(t *testing.T) {
			inLegs(t, core.Config{}, func(l *legs) {
				ids := prompt(1, 100)
				mustFault(t, l.d, Fault{Kind: "cut_path", From: c.from, For: c.slow})
				params, began := l.prefill(ids), time.Now()
				status, a := l.post(l.d, ids, 8, params)
				took := time.Since(began)
				if !c.cut {
					if status != 200 || a.text() != l.right(ids) {
						t.Errorf("on a path that is not cut: %d %q", status, a.text())
					}
					return
				}
				if status != 500 || took < c.took || took > c.took+100*time.Millisecond {
					t.Errorf("on a cut path: %d after %v, want 500 after %v", status, took, c.took)
				}
				// One failure for the load, and one for the notification that the params of the failed request are
				// void.
				if f, n := l.counter(failedTransfers), l.counter(failedNotifications); f != "1.0" || n != "0.0" {
					t.Errorf("failed transfers %s, notifications %s; want 1.0, and 0.0 before the time-out of the "+
						"notification", f, n)
				}
				time.Sleep(c.took + time.Millisecond) // simultaneous events have no order
				if f, n := l.counter(failedTransfers), l.counter(failedNotifications); f != "2.0" || n != "1.0" {
					t.Errorf("in the end: failed transfers %s, notifications %s; want 2.0 and 1.0", f, n)
				}
				mustFault(t, l.d, Fault{Kind: "mend_path", From: c.from})
				if status, a := l.post(l.d, ids, 8, l.prefill(ids)); status != 200 || a.text() != l.right(ids) {
					t.Errorf("mended: %d %q", status, a.text())
				}
			})
		})
	}
}

// With the policy to recompute, a cut path costs time, and the answer is right.
func TestCutPathIsRecomputed(t *testing.T) {
	inLegs(t, core.Config{LoadPolicy: core.Recompute}, func(l *legs) {
		ids := prompt(1, 100)
		mustFault(t, l.d, Fault{Kind: "cut_path", For: 2 * time.Second})
		params, began := l.prefill(ids), time.Now()
		status, a := l.post(l.d, ids, 8, params)
		if took := time.Since(began); status != 200 || a.text() != l.right(ids) || took < 2*time.Second {
			t.Errorf("%d %q after %v, want the right text after 2 s", status, a.text(), took)
		}
		if cached, failed := a.Usage.Details.Cached, l.counter(failedTransfers); cached != 0 || failed != "1.0" {
			t.Errorf("cached %d, failed transfers %s; want 0 and 1.0", cached, failed)
		}
	})
}

// Garbage from a peer gives status 200 with another text, and later a wrong answer to the plain prompt
// from the prefix cache. No counter shows it.
func TestWrongLoadPoisons(t *testing.T) {
	inLegs(t, core.Config{}, func(l *legs) {
		ids := prompt(1, 100)
		mustFault(t, l.d, Fault{Kind: "wrong_load", From: "p0"})
		status, a := l.post(l.d, ids, 8, l.prefill(ids))
		if status != 200 || a.text() == l.right(ids) || a.Usage.Details.Cached != 100 {
			t.Errorf("%d %q, %d cached; want 200, another text, and 100",
				status, a.text(), a.Usage.Details.Cached)
		}
		mustFault(t, l.d, Fault{Kind: "clear"})
		if _, a := l.post(l.d, ids, 8, "null"); a.text() == l.right(ids) {
			t.Error("the plain prompt got the right answer: the cache should be poisoned")
		}
		if l.counter(failedTransfers) != "0.0" {
			t.Error("counted a failed transfer")
		}
	})
}

// An engine that loads nothing answers correctly, counts nothing as external, and lets the peer's lease
// expire.
func TestNoLoadRecomputesAll(t *testing.T) {
	inLegs(t, core.Config{}, func(l *legs) {
		ids := prompt(1, 100)
		mustFault(t, l.d, Fault{Kind: "no_load"})
		status, a := l.post(l.d, ids, 8, l.prefill(ids))
		if status != 200 || a.text() != l.right(ids) || a.Usage.Details.Cached != 0 {
			t.Errorf("%d %q, %d cached; want the right text and none", status, a.text(), a.Usage.Details.Cached)
		}
		st := l.d.Stats()[0]
		if st.ExternalQueries+st.ExternalHits+st.NixlTransfers+st.PromptExternal > 0 || st.PromptComputed != 100 {
			t.Errorf("counters %+v, want nothing external", st.Counters)
		}
		if n := l.p.HeldBlocks(); n != 7 {
			t.Errorf("the prefill engine holds %d blocks, want 7: it gets no notification", n)
		}
		mustFault(t, l.d, Fault{Kind: "mend_path"})
		again := prompt(2, 100)
		if _, a := l.post(l.d, again, 8, l.prefill(again)); a.Usage.Details.Cached != 100 {
			t.Errorf("mended: %d cached, want 100", a.Usage.Details.Cached)
		}
	})
}

// Several loads from a frozen peer wait, in fake time, and continue when it continues.
func TestFrozenPeerInFakeTime(t *testing.T) {
	inLegs(t, core.Config{}, func(l *legs) {
		warm := prompt(9, 100)
		l.post(l.d, warm, 1, l.prefill(warm)) // the handshake of the two engines
		const n = 3
		var params []string
		for i := range n {
			params = append(params, l.prefill(prompt(uint64(i+1), 100)))
		}
		began := time.Now()
		mustFault(t, l.p, Fault{Kind: "freeze", For: 7 * time.Second})
		got := make(chan string, n)
		for i := range n {
			go func() {
				status, a := l.post(l.d, prompt(uint64(i+1), 100), 8, params[i])
				got <- fmt.Sprint(status, a.text() == l.right(prompt(uint64(i+1), 100)))
			}()
		}
		for range n {
			if s := <-got; s != "200 true" {
				t.Errorf("after the freeze: %s", s)
			}
		}
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("took %v, want about 7 s", took)
		}
	})
}

// A held path makes nothing fail: loads wait as long as it is held, and then continue.
func TestHeldPathGoesOnWhenMended(t *testing.T) {
	inLegs(t, core.Config{}, func(l *legs) {
		ids := prompt(1, 100)
		mustFault(t, l.d, Fault{Kind: "hold_path", From: "p0"})
		params, began := l.prefill(ids), time.Now()
		time.AfterFunc(20*time.Second, func() { mustFault(t, l.d, Fault{Kind: "mend_path"}) })
		status, a := l.post(l.d, ids, 8, params)
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("an answer after %v, want 20s", took)
		}
		if status != 200 || a.text() != l.right(ids) {
			t.Errorf("%d %q", status, a.text())
		}
		if f := l.counter(failedTransfers); f != "0.0" {
			t.Errorf("failed transfers %s, want 0.0", f)
		}
	})
}
