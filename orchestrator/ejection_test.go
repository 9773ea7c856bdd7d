package orchestrator

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// tally counts the answers that clients got.
type tally struct {
	mu     sync.Mutex
	bad    int
	first  string // the first bad answer
	wrong  int
	longer int // answers that took longer than a second
}

func (t *tally) take(got, want *heard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if got.took > time.Second {
		t.longer++
	}
	switch {
	case got.status != http.StatusOK || got.err != nil || got.fail.Message != "":
		if t.bad++; t.bad == 1 {
			t.first = fmt.Sprintf("status %d, %v: %s", got.status, got.err, got.raw)
		}
	case got.text != want.text:
		t.wrong++
	}
}

// nthChat is a chat with a prompt that differs for each n.
func nthChat(n int, stream bool) prompt {
	return prompt{path: "/v1/chat/completions", body: `{"model":"sim","max_tokens":12,"temperature":0,` +
		streaming(stream) +
		`"messages":[{"role":"user","content":"` + fmt.Sprintf("question %d: ", n) + words(120) + `"}]}`}
}

// crowd sends n chats, atOnce at the same time, half of them as streams. It compares each answer with the
// answer of a single engine.
func (w *world) crowd(n, atOnce, from int) *tally {
	var t tally
	var wg sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				p := nthChat(from+i, i%2 == 0)
				t.take(w.ask(p), w.right(p))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return &t
}

func (t *tally) want(tb testing.TB, what string, most int) {
	tb.Helper()
	if t.wrong > 0 {
		tb.Errorf("%s: %d wrong answers", what, t.wrong)
	}
	if t.bad > most {
		tb.Errorf("%s: %d clients got errors, want at most %d; the first: %s", what, t.bad, most, t.first)
	}
}

// add adds the counts of another tally.
func (t *tally) add(other *tally) {
	t.bad += other.bad
	t.wrong += other.wrong
	t.longer += other.longer
	t.first = cmp.Or(t.first, other.first)
}

func auto(c *config.Config) { c.Local = config.LocalAuto }

// oftenSplit is auto with a decode penalty that makes the router split even these short prompts.
func oftenSplit(c *config.Config) {
	auto(c)
	c.Scoring.DecodePenalty = 10
}

// A replica that answers 500 at once looks idle and attracts requests. It costs almost no client an
// answer, as a prefill or a decode replica, with and without local prefill.
func TestAReplicaThatFailsAtOnce(t *testing.T) {
	for _, local := range []string{config.LocalAuto, config.LocalNever} {
		for _, leg := range []string{"prefill", "decode"} {
			t.Run(leg+", local "+local, func(t *testing.T) {
				in(t, setup{config: func(c *config.Config) { oftenSplit(c); c.Local = local }}, func(w *world) {
					bad := w.d[0]
					if leg == "prefill" {
						bad = w.p[0]
					}
					fault(enginesim.Fault{Kind: "fail", Count: -1})(w, bad)
					w.crowd(120, 24, 0).want(t, "120 chats, 24 at a time", 3)
					if w.count("tandem_attempt_failures_total", bad.addr) == 0 {
						t.Error("no request met the failing replica: this test shows nothing")
					}
					if w.count("tandem_ejections_total", bad.addr) == 0 && leg == "decode" {
						t.Error("the failing replica was not ejected")
					}
				})
			})
		}
	}
}

// A prefill engine without a connector returns no KV transfer params. That costs no client an answer: a
// decode replica computes the prompt.
func TestAPrefillReplicaThatHandsOverNothing(t *testing.T) {
	for _, prefills := range []int{2, 1} {
		in(t, setup{prefill: prefills, config: oftenSplit}, func(w *world) {
			fault(enginesim.Fault{Kind: "null_params", Count: -1})(w, w.p[0])
			w.crowd(120, 24, 0).want(t, fmt.Sprintf("120 chats, %d prefill replicas", prefills), 0)
			met := w.count("tandem_transfer_params_refused_total", "")
			if out := w.count("tandem_ejections_total", w.p[0].addr); met < 2 || out == 0 {
				t.Errorf("refused the params of %d prompts and ejected the replica %d times, want at least 2 and 1",
					met, out)
			}
		})
	}
	in(t, setup{prefill: 1}, func(w *world) {
		fault(enginesim.Fault{Kind: "null_params", Count: -1})(w, w.p[0])
		if got := w.ask(chat(false)); got.status != http.StatusBadGateway ||
			!strings.Contains(got.raw, "local: never") {
			t.Errorf("with local: never: %d %s, want an error that names the setting", got.status, got.raw)
		}
	})
}

// When every engine fails, the clients get the engines' own errors. Ejection keeps nothing out: an engine
// that works again is used at once.
func TestAllEnginesFailAtOnce(t *testing.T) {
	in(t, setup{config: auto}, func(w *world) {
		for _, e := range append(w.p, w.d...) {
			fault(enginesim.Fault{Kind: "fail", Count: -1})(w, e)
		}
		got := w.crowd(60, 12, 0)
		if got.bad != 60 || !strings.Contains(got.first, "status 500") {
			t.Errorf("%d errors, the first %s; want 60 errors of the engines", got.bad, got.first)
		}
		for _, e := range append(w.p, w.d...) {
			fault(enginesim.Fault{Kind: "clear"})(w, e)
		}
		w.crowd(60, 12, 100).want(t, "all well again", 0)
	})
}

// One network path of sixteen between prefill and decode engines is cut. Its pair is ejected after two
// failures; the other fifteen pairs and all replicas stay in use.
func TestOneCutPathOfSixteen(t *testing.T) {
	in(t, setup{prefill: 4, decode: 4}, func(w *world) {
		fault(enginesim.Fault{Kind: "cut_path", From: "p0.internal", For: 50 * time.Millisecond})(w, w.d[0])
		w.crowd(1000, 16, 0).want(t, "1000 chats", 3)
		if n := w.count("tandem_pair_ejections_total", ""); n == 0 {
			t.Error("the pair was never ejected")
		}
		if n := w.count("tandem_pair_ejections_total",
			"") - w.count("tandem_pair_ejections_total", w.d[0].addr); n != 0 {
			t.Errorf("%d ejections of other pairs, want 0", n)
		}
		if n := w.count("tandem_ejections_total", ""); n != 0 {
			t.Errorf("%d replicas were ejected although only a path is cut", n)
		}
		cut := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[0].addr)}
		time.Sleep(time.Minute)
		if !w.o.planner.Outliers().PairOut(cut) {
			t.Error("the pair is back while its path is cut")
		}
		fault(enginesim.Fault{Kind: "mend_path"})(w, w.d[0])
		mended := time.Now()
		for w.o.planner.Outliers().PairOut(cut) && time.Since(mended) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(mended); took > 10*time.Second {
			t.Errorf("the pair was back %v after its path was mended, want at most 10s", took)
		}
		w.crowd(200, 16, 2000).want(t, "200 chats after that", 0)
		if n := w.count("tandem_handoff_tokens_total", w.d[0].addr); n == 0 {
			t.Error("the pair is not used after its return")
		}
	})
}

// An ejected replica or pair returns after a trial of the router. No client meets it while it is still
// broken.
func TestRecoveryCostsNoClientAnything(t *testing.T) {
	for _, kind := range []string{"fail", "null_params"} {
		in(t, setup{config: func(c *config.Config) {
			auto(c)
			if kind == "null_params" { // it matters only to split requests, so make them frequent
				c.Scoring.DecodePenalty = 10
			}
		}}, func(w *world) {
			bad := w.d[0]
			if kind == "null_params" {
				bad = w.p[0]
			}
			fault(enginesim.Fault{Kind: kind, Count: -1})(w, bad)
			w.crowd(120, 24, 1000000).want(t, kind, 1)
			w.wire.forget()
			before := w.count("tandem_retries_total", "")
			for i := range 20 { // during several trials
				w.crowd(6, 3, 100+6*i).want(t, kind+", while it is out", 0)
				time.Sleep(time.Second)
			}
			if n := w.count("tandem_retries_total", "") - before; n > 2 {
				t.Errorf("%s: %d requests met the replica while it was ejected", kind, n)
			}
			if n := w.count("tandem_trials_total", "failed"); n < 2 {
				t.Errorf("%s: only %d trials failed", kind, n)
			}
			fault(enginesim.Fault{Kind: "clear"})(w, bad)
			time.Sleep(40 * time.Second)
			w.crowd(120, 12, 1000).want(t, kind+", well again", 0)
			for _, s := range w.o.planner.Outliers().Status(time.Now()) {
				if s.State == outlier.Ejected {
					t.Errorf("%s: still ejected: %+v", kind, s)
				}
			}
			if n := w.count("tandem_leases", ""); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// A reload that renames an ejected replica does not bring it back.
func TestAnEjectedReplicaIsRenamed(t *testing.T) {
	in(t, setup{config: auto}, func(w *world) {
		fault(enginesim.Fault{Kind: "fail", Count: -1})(w, w.d[0])
		w.crowd(120, 24, 0).want(t, "before it is renamed", 3)
		was := replica.ID(w.d[0].addr)
		shown := w.o.fleet.Endpoint(was).States(was)
		if len(shown) == 0 {
			t.Fatal("the replica is not ejected: this test shows nothing")
		}
		cfg := *w.cfg
		cfg.Pools.Decode.Replicas = slices.Clone(cfg.Pools.Decode.Replicas)
		cfg.Pools.Decode.Replicas[0].Name = "first"
		ejections, trials := w.count("tandem_ejections_total", ""), w.count("tandem_trials_total", "failed")
		w.apply(&cfg)
		if now := w.o.fleet.Endpoint("first").States("first"); !slices.Equal(now, shown) {
			t.Errorf("shown as %v, want %v as before", now, shown)
		}
		w.crowd(120, 24, 1000).want(t, "under its new name", 0)
		time.Sleep(10 * time.Second)
		if n := w.count("tandem_ejections_total", "") - ejections; n != 0 {
			t.Errorf("the replica was ejected %d times more", n)
		}
		if n := w.count("tandem_trials_total", "failed") - trials; n == 0 {
			t.Error("no trial goes to the renamed replica")
		}
	})
}

// The path of a pair is cut, and no request shows it: the decode engine computes again what it could not
// load, and reports no cached tokens. The engine's counters show it: the pair is tried with canaries and
// ejected.
func TestASilentlyCutPathShowsInCounters(t *testing.T) {
	s := setup{prefill: 2, decode: 2, engine: func(_ string, o *enginesim.Options) {
		o.NoUsageDetails, o.Core.LoadPolicy = true, core.Recompute
	}}
	in(t, s, func(w *world) {
		fault(enginesim.Fault{Kind: "cut_path", From: "p0.internal", For: 20 * time.Millisecond})(w, w.d[0])
		for i := range 10 {
			w.crowd(12, 4, 12*i).want(t, "12 chats", 0)
			time.Sleep(3 * time.Second)
		}
		cut := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[0].addr)}
		if !w.o.planner.Outliers().PairOut(cut) {
			t.Error("the pair with the cut path is not ejected")
		}
		for _, st := range w.o.planner.Outliers().Status(time.Now()) {
			if st.State != outlier.InUse && (st.Pair == nil || *st.Pair != cut) {
				t.Errorf("also blamed: %+v %+v", st, st.Pair)
			}
		}
	})
}

// A decode engine loads no blocks and computes every prompt again. Its answers are right, but its reported
// cached tokens show that the prefills are useless. Its pairs are ejected.
func TestADecodeReplicaThatLoadsNothing(t *testing.T) {
	in(t, setup{prefill: 2, decode: 3}, func(w *world) {
		fault(enginesim.Fault{Kind: "no_load"})(w, w.d[0])
		w.crowd(60, 4, 0).want(t, "60 chats", 0)
		if n := w.count("tandem_ejections_total",
			w.d[0].addr) + w.count("tandem_pair_ejections_total", w.d[0].addr); n == 0 {
			t.Error("no ejection, although no blocks were moved")
		}
		if n := w.count("tandem_ejections_total", "") - w.count("tandem_ejections_total", w.d[0].addr); n != 0 {
			t.Errorf("%d other replicas were ejected", n)
		}
		moved := w.count("tandem_handoff_tokens_total", "unsure") // without KV events the router is not sure
		if planned := w.count("tandem_handoff_tokens_total", "planned"); moved == 0 || moved >= planned {
			t.Errorf("%d of %d planned tokens were moved", moved, planned)
		}
		for _, r := range w.o.ring.Newest(1000) {
			if strings.HasPrefix(r.Decode, "d0") != (r.Moved == 0) {
				t.Errorf("%s: planned %d, moved %d", r.Decode, r.Planned, r.Moved)
			}
		}
	})
}

// A decode engine also caches prompts that another client sends it. Their tokens look like transferred
// ones. Without KV events they are no proof that the pair moves blocks. The router checks the engine's
// counters, which show that it does not.
func TestTokensThatWereThereProveNoTransfer(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1}, func(w *world) {
		fault(enginesim.Fault{Kind: "no_load"})(w, w.d[0])
		for i := range 12 {
			p := nthChat(i, i%2 == 0)
			if got := w.send(w.t.Context(), w.d[0].addr, p); got.status != http.StatusOK {
				t.Fatalf("sent directly to the engine: status %d", got.status)
			}
			w.exact(p, w.ask(p))
			rec := w.o.ring.Newest(1)[0]
			if rec.Mode == "split" && (rec.Moved <= 0 || !rec.Unsure) {
				t.Errorf("planned %d tokens, moved %d, unsure %v; want some, unsure", rec.Planned, rec.Moved, rec.Unsure)
			}
			time.Sleep(3 * time.Second)
		}
		if n := w.count("tandem_handoff_tokens_total", "moved"); n != 0 {
			t.Errorf("%d tokens count as moved", n)
		}
		if n := w.count("tandem_pair_ejections_total", w.d[0].addr); n == 0 {
			t.Error("no ejection, although no blocks were moved")
		}
	})
}

// A decode replica is twenty times slower than the other one. The router learns that from its answers:
// after the first ten requests almost none goes there.
func TestASlowDecodeReplica(t *testing.T) {
	in(t, setup{config: auto}, func(w *world) {
		fault(enginesim.Fault{Kind: "slow", Factor: 20})(w, w.d[0])
		there := func(n, from int) int {
			before := w.count("tandem_leg_seconds_count", w.d[0].addr)
			for i := range n {
				p := nthChat(from+i, i%2 == 0)
				w.exact(p, w.ask(p))
			}
			return w.count("tandem_leg_seconds_count", w.d[0].addr) - before
		}
		first, then := there(10, 0), there(30, 10)
		t.Logf("%d of the first 10, %d of the 30 after them went to the slow replica", first, then)
		if then > 1 {
			t.Errorf("%d of 30 requests went to the slow replica, want at most 1", then)
		}
	})
}

// A decode engine freezes while it computes prompts itself. Requests that have received nothing yet are
// served elsewhere and do not wait for it.
func TestAFrozenEngineDoesNotHoldItsOwnPrompts(t *testing.T) {
	for _, stream := range []bool{true, false} {
		s := setup{config: func(c *config.Config) {
			c.Local = config.LocalAlways
			c.Timeouts.DecodeFirst, c.Timeouts.Answer = 2*time.Minute, 30*time.Minute
			c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		}}
		in(t, s, func(w *world) {
			var once sync.Once
			w.at("decode", func(at string) {
				once.Do(func() { fault(enginesim.Fault{Kind: "freeze", For: time.Minute})(w, w.by(at)) })
			})
			p := chat(stream)
			got := w.ask(p)
			w.exact(p, got)
			if got.took > 20*time.Second {
				t.Errorf("answered after %v, want at most 20 s", got.took)
			}
			time.Sleep(time.Minute)
		})
	}
}

// Some requests make every engine answer 500. Many of them at once eject nothing and cost no other request
// its answer.
func TestRequestsThatEveryEngineFailsOn(t *testing.T) {
	for _, local := range []string{config.LocalAuto, config.LocalNever} {
		t.Run("local "+local, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) { c.Local = local }}, func(w *world) {
				for _, e := range append(w.p, w.d...) {
					fault(enginesim.Fault{Kind: "fail", Body: `"seed":666`, Count: -1})(w, e)
				}
				var wg sync.WaitGroup
				for n := range 8 {
					wg.Go(func() {
						for i := range 15 {
							p := nthChat(1000+n*100+i, i%2 == 0)
							p.body = strings.Replace(p.body, `"max_tokens"`, `"seed":666,"max_tokens"`, 1)
							if got := w.ask(p); got.status == http.StatusOK && got.fail.Message == "" {
								w.t.Errorf("a request that engines fail on was answered: %s", got.raw)
							}
							time.Sleep(20 * time.Millisecond)
						}
					})
				}
				w.crowd(60, 12, 0).want(t, "60 chats beside requests that fail", 0)
				wg.Wait()
				// engines that were ejected until other requests had been tried have had a trial by then
				time.Sleep(10 * time.Second)
				for _, s := range w.o.planner.Outliers().Status(time.Now()) {
					if s.State == outlier.Ejected { // a half-open replica waits for its next request
						t.Errorf("%s %s %v is %v for %s", s.Replica, s.Leg, s.Pair, s.State, s.Cause)
					}
				}
			})
		})
	}
}

// A client repeats a request that every engine answers with 500, and there are no other requests. Nothing
// is ejected, whether other requests come later or not.
func TestARequestThatEveryEngineFailsOnIsSentAgainAndAgain(t *testing.T) {
	for _, local := range []string{config.LocalAuto, config.LocalNever} {
		t.Run("local "+local, func(t *testing.T) {
			in(t, setup{decode: 4, config: func(c *config.Config) { c.Local = local }}, func(w *world) {
				for _, e := range append(w.p, w.d...) {
					fault(enginesim.Fault{Kind: "fail", Body: "question 1000:", Count: -1})(w, e)
				}
				for range 30 {
					w.failed(nthChat(1000, false), w.ask(nthChat(1000, false)), http.StatusInternalServerError)
				}
				w.blamed(0, 0)
				w.crowd(60, 12, 0).want(t, "60 other chats", 0)
			})
		})
	}
}

// A request meets a replica that is known to be bad, for example half-open after a trial. Its retry is
// free: it uses no retry budget. This also holds after a 503, which blames the replica at once.
func TestARetryFromWhoIsKnownToBeBadNeedsNoBudget(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Retry.Share, c.Retry.Min = 0, 0 }}, func(w *world) {
		// Canaries do not fail, so the replica returns again and again.
		of503 := enginesim.Fault{Kind: "fail", Status: http.StatusServiceUnavailable, Body: "question", Count: -1}
		fault(of503)(w, w.d[0])
		for i := 0; w.count("tandem_ejections_total", w.d[0].addr) == 0; i++ {
			if w.crowd(12, 12, 1000*i); i == 10 {
				t.Fatal("the replica is not ejected")
			}
		}
		before := w.count("tandem_attempt_failures_total", w.d[0].addr)
		for i := range 60 {
			w.crowd(6, 6, 100_000+10*i).want(t, "6 chats", 0)
			time.Sleep(time.Second)
		}
		if n := w.count("tandem_attempt_failures_total", w.d[0].addr) - before; n < 3 {
			t.Errorf("only %d requests met the replica: this test shows nothing", n)
		}
	})
}

// A request failed at two decode replicas, with a different prefill replica each time. Neither prefill
// replica is known to be at fault, so the third attempt uses one of them again.
func TestAThirdDecodeReplicaIsAskedBehindAPrefillReplicaInDoubt(t *testing.T) {
	in(t, setup{decode: 4}, func(w *world) {
		time.Sleep(time.Second) // all replicas have joined
		failed := 0
		w.at("decode", func(at string) {
			if failed++; failed <= 2 {
				fault(enginesim.Fault{Kind: "fail", Leg: "decode"})(w, w.by(at))
			}
		})
		p := chat(false)
		w.exact(p, w.ask(p))
		if failed != 3 {
			t.Errorf("%d attempts reached a decode replica, want 3", failed)
		}
	})
}

// Half or more of the decode engines start to fail at once. With two of four, a request that failed at
// both before they were known to fail is tried with a third, so no client loses its answer.
// With three of four, some requests meet all three before that, and a request has no fourth attempt. Their
// number is random: 2 of 120 on average, 8 in one of a hundred runs. So the test sums eight runs and
// bounds the sum. An engine that few requests have met is not ejected yet, so a few requests may fail
// later too: 1 in about 50 runs of 960 requests.
// The blame for these failures stays: no request was answered well there meanwhile, so the engines are at
// fault.
func TestHalfAndMoreFailAtOnce(t *testing.T) {
	for _, tt := range []struct{ bad, plays, most int }{{bad: 2, plays: 1}, {bad: 3, plays: 8, most: 32}} {
		for _, local := range []string{config.LocalAuto, config.LocalNever} {
			t.Run(fmt.Sprintf("%d of 4, local %s", tt.bad, local), func(t *testing.T) {
				var unknown, later tally
				for range tt.plays {
					in(t, setup{decode: 4, config: func(c *config.Config) { c.Local = local }}, func(w *world) {
						w.failAtOnce(w.d[:tt.bad], &unknown, &later)
					})
				}
				unknown.want(t, "before the failures are known", tt.most)
				later.want(t, "later", tt.most/8)
			})
		}
	}
}

// failAtOnce makes the bad engines fail. unknown sums the answers before the failures are known, later the
// answers after most are known.
func (w *world) failAtOnce(bad []*simulated, unknown, later *tally) {
	w.crowd(24, 12, 0).want(w.t, "before the failures", 0)
	for _, d := range bad {
		fault(enginesim.Fault{Kind: "fail", Count: -1})(w, d)
	}
	unknown.add(w.crowd(120, 24, 100))
	later.add(w.crowd(120, 24, 300))
	w.crowd(120, 24, 500).want(w.t, "at last", 0)
}

// Two of three decode engines start to fail at once. A request that failed at both before they were known
// to fail is tried with the third.
func TestTwoOfThreeFailAtOnce(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		for _, d := range w.d[:2] {
			fault(enginesim.Fault{Kind: "fail", Count: -1})(w, d)
		}
		w.crowd(60, 12, 0).want(t, "before the failures are known", 1)
		time.Sleep(2 * time.Second)
		w.crowd(60, 12, 100).want(t, "later", 0)
	})
}
