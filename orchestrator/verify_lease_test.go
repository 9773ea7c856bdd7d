package orchestrator

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// slowPair is the setup of one pair with few blocks and long timeouts, for answers that begin after the
// lease has ended.
func slowPair(lease time.Duration) setup {
	return setup{
		prefill: 1, decode: 1,
		engine: func(name string, o *enginesim.Options) {
			o.Core.Blocks = 24
			if name[0] == 'd' {
				o.Core.Blocks = 64 // so that wrongly loaded blocks stay in the cache
			}
		},
		config: func(c *config.Config) {
			c.Timeouts.DecodeFirst = 2 * time.Minute
			c.Timeouts.DecodeIdle = time.Minute
			c.Timeouts.Answer = 2 * time.Minute
			c.Connector.Lease = lease
		},
	}
}

// once calls happens at the first decode leg.
func (w *world) once(happens func()) {
	var once sync.Once
	w.at("decode", func(string) { once.Do(happens) })
}

// coreStands freezes the core of the decode engine until after the lease, so that the lease expires, while
// its API process still answers. Meanwhile other prompts reuse the freed blocks of the prefill engine.
func coreStands(w *world) { w.once(func() { standStill(w) }) }

func standStill(w *world) {
	fault(enginesim.Fault{Kind: "freeze_core", For: 40 * time.Second})(w, w.d[0])
	later(32*time.Second, func(w *world, p *simulated) {
		for i := range 4 {
			w.send(w.t.Context(), p.addr, guardedPrompt(idPrompt(50+i, 200), ""))
		}
	})(w, w.p[0])
}

// A decode engine with a frozen core reads blocks that no longer belong to the prompt. The router uses
// neither its answer nor the blocks that it has cached.
func TestDisbelieved(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			in(t, slowPair(30*time.Second), func(w *world) {
				p := guardedPrompt(idPrompt(1, 100), fmt.Sprintf(`,"stream":%t`, stream))
				coreStands(w)
				w.exact(p, w.ask(p))
				if n := w.count("tandem_late_answers_total", "disbelieved"); n != 1 {
					w.t.Errorf("%d answers were disbelieved, want 1", n)
				}
				if n := w.count("tandem_decode_distrusted_total", w.d[0].addr); n != 1 {
					w.t.Errorf("the decode engine was distrusted %d times, want once", n)
				}
				if plain := w.send(w.t.Context(), w.d[0].addr, p); plain.text == w.right(p).text {
					w.t.Error("the decode engine's cache is not poisoned: this test shows nothing")
				}
				w.exact(p, w.ask(p))
				again := guardedPrompt(idPrompt(1, 130), "") // a longer prompt with the same beginning
				w.exact(again, w.ask(again))
				salted := guardedPrompt(idPrompt(1, 100), `,"cache_salt":"mine"`)
				w.exact(salted, w.ask(salted))
			})
		})
	}
}

// After a late answer, the router sends a canary, and asks the prefill engine for one more token, so that
// it counts late reads. If one of them fails, nothing proves that there were none. Then the answer is not
// used.
func TestRefusedCanaryProvesNothing(t *testing.T) {
	// the canary's prefill leg, and the request for one more token
	for _, leg := range []string{"prefill", "plain"} {
		for _, status := range []int{404, 429, 500, 503} {
			t.Run(fmt.Sprint(leg, " ", status), func(t *testing.T) {
				in(t, slowPair(30*time.Second), func(w *world) {
					p := guardedPrompt(idPrompt(1, 100), "")
					coreStands(w)
					refuse := enginesim.Fault{
						Kind: "fail", Leg: leg, Path: "/v1/completions", Status: status, Count: 1,
					}
					later(39*time.Second, fault(refuse))(w, w.p[0])
					w.exact(p, w.ask(p))
					if n := w.count("tandem_late_answers_total", "unknown"); n != 1 {
						w.t.Errorf("%d late answers are unproven, want 1", n)
					}
					w.exact(p, w.ask(p))
				})
			})
		}
	}
}

// After a restart the prefill engine counts from zero. Equal counts before and after then prove nothing.
func TestRestartedEngineProvesNothing(t *testing.T) {
	in(t, slowPair(30*time.Second), func(w *world) {
		p := post("/v1/completions",
			`{"model":"sim","max_tokens":200,"temperature":0,"ignore_eos":true,"prompt":`+idPrompt(1, 100)+`}`)
		coreStands(w)
		later(40*time.Second+500*time.Millisecond,
			fault(enginesim.Fault{Kind: "restart", For: 100 * time.Millisecond}))(w, w.p[0])
		w.exact(p, w.ask(p))
		if n := w.count("tandem_late_answers_total", "unknown"); n != 1 {
			w.t.Errorf("%d late answers are unproven, want 1", n)
		}
	})
}

// Without the guard, the result is that of real engines: a wrong text and wrong cached blocks.
func TestUnbelievable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowPair(time.Hour))
		defer w.close()
		p := guardedPrompt(idPrompt(1, 100), "")
		coreStands(w)
		for _, when := range []string{"first", "again"} {
			if got, want := w.ask(p), w.right(p); got.status != 200 || got.text == want.text {
				t.Errorf("%s: status %d, text %q; want 200 and a wrong text", when, got.status, got.text)
			}
		}
	})
}

// An answer that is late for another reason is used, even if the lease of another prompt has ended
// meanwhile. There is one exception: if a read of its engine has also failed, the message about a late
// read may be lost.
func TestBelieved(t *testing.T) {
	stranded := guardedPrompt(idPrompt(9, 40), `,"kv_transfer_params":{"do_remote_decode":true}`)
	failing := guardedPrompt(idPrompt(8, 20), `,"kv_transfer_params":{"do_remote_prefill":true,`+
		`"remote_block_ids":[[1,2]],"remote_engine_id":"gone","remote_request_id":"gone",`+
		`"remote_host":"gone.internal","remote_port":5600,"tp_size":1}`)
	for _, c := range []struct {
		name, verdict string
		meanwhile     func(w *world)
	}{
		{"alone", "believed", func(*world) {}},
		{"a lease ended", "believed", func(w *world) { w.send(w.t.Context(), w.p[0].addr, stranded) }},
		{"a read failed", "believed", func(w *world) { w.send(w.t.Context(), w.d[0].addr, failing) }},
		{"both", "unknown", func(w *world) {
			w.send(w.t.Context(), w.p[0].addr, stranded)
			w.send(w.t.Context(), w.d[0].addr, failing)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, slowPair(30*time.Second), func(w *world) {
				p := guardedPrompt(idPrompt(1, 100), `,"stream":true`)
				w.once(func() {
					c.meanwhile(w)
					fault(enginesim.Fault{Kind: "slow", Factor: 4000})(w, w.d[0]) // 40 s per token
					later(45*time.Second, fault(enginesim.Fault{Kind: "slow", Factor: 1}))(w, w.d[0])
				})
				got := w.ask(p)
				w.exact(p, got)
				if got.when[0] < 30*time.Second {
					w.t.Fatalf("the answer began after %v: it was not late", got.when[0])
				}
				if n := w.count("tandem_late_answers_total", c.verdict); n != 1 {
					w.t.Errorf("%d late answers were %s, want 1", n, c.verdict)
				}
				want := map[string]int{"unknown": 1}[c.verdict]
				if n := w.count("tandem_decode_distrusted_total", ""); n != want {
					w.t.Errorf("engines were distrusted %d times, want %d", n, want)
				}
			})
		})
	}
}

// A restarted engine has an empty cache, so its requests get no cache salt any more.
func TestTrustedAgain(t *testing.T) {
	in(t, slowPair(30*time.Second), func(w *world) {
		p := guardedPrompt(idPrompt(1, 100), "")
		// All engines of a world start at the same time, and the start time tells processes apart.
		fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.p[0])
		time.Sleep(20 * time.Second)
		coreStands(w)
		w.exact(p, w.ask(p))
		fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.d[0])
		time.Sleep(20 * time.Second)
		w.wire.forget()
		w.exact(p, w.ask(p))
		for _, leg := range w.posts(false) {
			if strings.Contains(leg.body, "cache_salt") {
				w.t.Errorf("still salted: %s", leg.body)
			}
		}
	})
}

// The message about a late read may still be on its way when the router asks for it: here the path is cut
// just after the read. Then a count of zero proves nothing.
func TestLateWordUnderWay(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			s := slowPair(30 * time.Second)
			small := s.engine
			s.engine = func(name string, o *enginesim.Options) {
				small(name, o)
				o.TransferRate = 70 // blocks per second: those of the prompt take 100 ms
			}
			in(t, s, func(w *world) {
				p := guardedPrompt(idPrompt(1, 100), fmt.Sprintf(`,"stream":%t`, stream))
				coreStands(w)
				cut := fault(enginesim.Fault{Kind: "hold_path", From: "p0.internal"})
				later(40*time.Second+90*time.Millisecond, cut)(w, w.d[0])
				w.exact(p, w.ask(p))
				if n := w.count("tandem_late_answers_total", "unknown"); n != 1 {
					w.t.Errorf("%d late answers are unproven, want 1", n)
				}
				if n := w.count("tandem_decode_distrusted_total", w.d[0].addr); n != 1 {
					w.t.Errorf("the decode engine was distrusted %d times, want once", n)
				}
			})
		})
	}
}

// The message about a late read may arrive between the two legs of the canary, during a step of the
// prefill engine. The engine counts it in its next step.
func TestLateWordBehindStep(t *testing.T) {
	s := slowPair(30 * time.Second)
	small := s.engine
	s.engine = func(name string, o *enginesim.Options) {
		small(name, o)
		o.TransferRate = 70 // blocks per second: those of the prompt take 100 ms
	}
	in(t, s, func(w *world) {
		p := guardedPrompt(idPrompt(1, 100), "")
		coreStands(w)
		hold, mend := enginesim.Fault{Kind: "hold_path", From: "p0.internal"}, enginesim.Fault{Kind: "mend_path"}
		later(40*time.Second+90*time.Millisecond, fault(hold))(w, w.d[0])
		later(42*time.Second, fault(enginesim.Fault{Kind: "slow", Factor: 1000}))(w, w.p[0])
		later(42*time.Second+time.Millisecond, func(w *world, at *simulated) {
			w.send(w.t.Context(), at.addr, guardedPrompt(idPrompt(70, 40), ""))
		})(w, w.p[0])
		later(42*time.Second+10*time.Millisecond, fault(enginesim.Fault{Kind: "slow", Factor: 1}))(w, w.p[0])
		later(42*time.Second+20*time.Millisecond, fault(mend))(w, w.d[0])
		w.exact(p, w.ask(p))
		if n := w.count("tandem_late_answers_total", "disbelieved"); n != 1 {
			w.t.Errorf("%d answers were disbelieved, want 1", n)
		}
	})
}
