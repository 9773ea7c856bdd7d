package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
)

// longAnswers allows answers that take longer than the lease.
func longAnswers(c *config.Config) {
	c.Timeouts.DecodeFirst = time.Minute
	c.Timeouts.Answer = 2 * time.Minute
	c.Timeouts.DecodeIdle = time.Minute
	c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
}

// longPrompt is a request with an answer of this many decode steps.
func longPrompt(steps int) prompt {
	return post("/v1/completions", fmt.Sprintf(
		`{"model":"sim","max_tokens":%d,"temperature":0,"ignore_eos":true,"prompt":%s}`, steps, idPrompt(1, 120),
	))
}

// without returns the configuration without the replicas at these addresses.
func without(c *config.Config, addrs ...string) *config.Config {
	out := *c
	for _, p := range []*config.Pool{&out.Pools.Prefill, &out.Pools.Decode} {
		p.Replicas = slices.DeleteFunc(slices.Clone(p.Replicas),
			func(r config.Replica) bool { return slices.Contains(addrs, r.ID()) })
	}
	return &out
}

func (w *world) apply(c *config.Config) {
	w.t.Helper()
	if err := w.o.Apply(c); err != nil {
		w.t.Error(err)
	}
}

// The replicas that serve a request leave the configuration while its answer is generated. The decode
// engine read the blocks in time, so the answer is not thrown away and no engine is distrusted, even if
// the lease has ended meanwhile. Once the request has ended, the departed replicas are not polled any
// more.
func TestRequestsOutliveTheirReplicas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps int
		leave func(w *world) []string
	}{
		{"prefill, within the lease", 2200, func(w *world) []string { return []string{w.p[0].addr} }},
		{"prefill, beyond the lease", 3600, func(w *world) []string { return []string{w.p[0].addr} }},
		{"decode, beyond the lease", 3600, func(w *world) []string { return []string{w.d[0].addr} }},
		{"both, beyond the lease", 3600, func(w *world) []string { return []string{w.p[0].addr, w.d[0].addr} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{prefill: 1, decode: 1, config: longAnswers}, func(w *world) {
				p := longPrompt(tt.steps)
				later(3*time.Second, func(w *world, _ *simulated) { w.apply(without(w.cfg, tt.leave(w)...)) })(w, nil)
				got := w.ask(p)
				w.exact(p, got)
				if most := time.Duration(tt.steps+20) * decodeStep; got.took > most {
					w.t.Errorf("took %v, want at most %v", got.took, most)
				}
				if n := w.count("tandem_decode_distrusted_total", ""); n != 0 {
					w.t.Errorf("engines were distrusted %d times, want 0", n)
				}
				time.Sleep(2 * time.Second)
				asked := map[string]int{}
				for _, addr := range tt.leave(w) {
					asked[addr] = w.by(addr).Calls()["/metrics"]
				}
				time.Sleep(5 * time.Second)
				for addr, before := range asked {
					if n := w.by(addr).Calls()["/metrics"]; n != before {
						w.t.Errorf("%s is still polled, although it has left and its last request has ended", addr)
					}
				}
			})
		})
	}
}

// A prefill engine leaves the configuration and then freezes. The router notices its silence while a
// request still needs it.
func TestSilenceOfWhoHasLeftIsHeard(t *testing.T) {
	s := slowPair(30 * time.Second)
	s.prefill = 2
	in(t, s, func(w *world) {
		p := guardedPrompt(idPrompt(1, 100), `,"stream":true`)
		first := ""
		w.at("prefill", func(at string) {
			if first != "" {
				return
			}
			first = at
			w.apply(without(w.cfg, at))
		})
		w.once(func() {
			fault(enginesim.Fault{Kind: "freeze", For: 40 * time.Second})(w, w.by(first))
			w.net.Refuse(w.by(first).side, true)
			later(40*time.Second, func(w *world, _ *simulated) { w.net.Refuse(w.by(first).side, false) })(w, nil)
		})
		got := w.ask(p)
		w.exact(p, got)
		if got.took > 30*time.Second {
			w.t.Errorf("took %v: the router did not notice that the prefill engine is frozen", got.took)
		}
		time.Sleep(time.Minute)
	})
}

// A replica moves to another address. The old engine serves until the new one has joined, and then no
// longer.
func TestMovedReplica(t *testing.T) {
	named := func(c *config.Config) {
		for i := range c.Pools.Decode.Replicas {
			c.Pools.Decode.Replicas[i].Name = "decode"
		}
	}
	in(t, setup{prefill: 1, decode: 1, config: named}, func(w *world) {
		moved := *w.cfg
		moved.Pools.Decode.Replicas = []config.Replica{{Name: "decode", URL: "http://later.internal:8000"}}
		w.net.Refuse("later.internal:8000", true)
		p := guardedPrompt(idPrompt(1, 100), "")
		w.exact(p, w.ask(p))
		w.apply(&moved)
		served := func(by string) {
			w.t.Helper()
			w.wire.forget()
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			if len(legs) != 2 || legs[1].engine != by {
				w.t.Errorf("the legs went to %v, want the last at %s", legs, by)
			}
			if ready := w.get("admin", "/readyz"); ready.status != 200 ||
				strings.Count(ready.raw, `"replica": "decode"`) != 1 {
				w.t.Errorf("/readyz: %d %s", ready.status, ready.raw)
			}
			if n := w.count("tandem_replica_up", "decode"); n != 1 {
				w.t.Errorf("the metrics show %d replicas named decode as up, want 1", n)
			}
		}
		for range 3 {
			served("d0")
			time.Sleep(2 * time.Second)
		}
		w.apply(w.cfg) // move back, and move again
		served("d0")
		w.apply(&moved)
		served("d0")
		w.net.Refuse("later.internal:8000", false)
		w.d = append(w.d, w.engine(setup{}, "later"))
		time.Sleep(10 * time.Second)
		served("later")
		if known := w.known(); known[1] == 0 {
			w.t.Error("the index knows no block of the new engine after it has served")
		}
		before := w.d[0].Calls()["/metrics"]
		time.Sleep(10 * time.Second)
		if n := w.d[0].Calls()["/metrics"]; n != before {
			w.t.Errorf("the old engine is still polled: %d times", n-before)
		}
		if n := w.o.decode.Status(time.Now()); len(n) != 1 || n[0].ID != replica.ID("decode") {
			w.t.Errorf("members %+v", n)
		}
	})
}

// The only decode replica moves to another address while a request is between its legs. The engine that
// has the name by then has failed no request: it serves the decode leg.
func TestMovedBetweenTheLegs(t *testing.T) {
	for _, tt := range []struct {
		name, span string
		retries    int
	}{
		{"while the prompt is computed", "prefill", 0},
		{"when the decode leg is written", "handoff", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := func(c *config.Config) { c.Pools.Decode.Replicas[0].Name = "decode" }
			in(t, setup{prefill: 1, decode: 1, config: named}, func(w *world) {
				w.d = append(w.d, w.engine(setup{}, "later"))
				moved := *w.cfg
				moved.Pools.Decode.Replicas = []config.Replica{{Name: "decode", URL: "http://later.internal:8000"}}
				w.at(tt.span, func(string) {
					w.at(tt.span, nil)
					w.apply(&moved)
					time.Sleep(time.Second) // the new engine joins
				})
				p := guardedPrompt(idPrompt(1, 100), "")
				w.exact(p, w.ask(p))
				if n := w.count("tandem_retries_total", ""); n != tt.retries {
					w.t.Errorf("counted %d retries, want %d", n, tt.retries)
				}
			})
		})
	}
}

// A reload replaces all servers of a pool. The former ones serve until one of the new servers has joined,
// whatever their names are. If the reload names no new server, they leave at once.
func TestAPoolIsReplacedWhole(t *testing.T) {
	for _, pool := range []string{"prefill", "decode"} {
		t.Run(pool, func(t *testing.T) {
			in(t, setup{prefill: 2, decode: 2}, func(w *world) {
				with := func(urls ...string) *config.Config {
					cfg, rs := *w.cfg, []config.Replica{}
					for _, url := range urls {
						rs = append(rs, config.Replica{URL: "http://" + url + ".internal:8000"})
					}
					if cfg.Pools.Decode.Replicas = rs; pool == "prefill" {
						cfg.Pools.Prefill.Replicas, cfg.Pools.Decode.Replicas = rs, w.cfg.Pools.Decode.Replicas
					}
					return &cfg
				}
				served := func(by ...string) {
					w.t.Helper()
					w.wire.forget()
					p := nthChat(w.asked, true)
					w.exact(p, w.ask(p))
					legs := w.posts(false)
					if len(legs) != 2 || !slices.Contains(by, legs[map[string]int{"decode": 1}[pool]].engine) {
						w.t.Errorf("the legs went to %v, want one at %s", legs, by)
					}
				}
				before := []string{pool[:1] + "0", pool[:1] + "1"}
				w.net.Refuse("later.internal:8000", true)
				w.net.Refuse("never.internal:8000", true)
				w.apply(with("later", "never"))
				for range 3 {
					served(before...)
					time.Sleep(2 * time.Second)
				}
				fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.by(before[0]+".internal:8000"))
				time.Sleep(10 * time.Second) // the engine has joined again
				served(before...)
				w.apply(with(before[1], "never")) // one of the former servers may stay: it is enough
				served(before[1])
				w.apply(with("never", "later"))
				served(before[1])
				w.net.Refuse("later.internal:8000", false)
				w.d = append(w.d, w.engine(setup{}, "later"))
				time.Sleep(10 * time.Second)
				served("later")
				if n := len(w.o.fleet.Watchers()); n != 4 {
					w.t.Errorf("the fleet watches %d servers, want 4", n)
				}
				w.apply(with())
				if got := w.ask(nthChat(1, true)); got.status != 503 {
					w.t.Errorf("status %d from an empty pool, want 503", got.status)
				}
			})
		})
	}
}

// An engine in both pools counts as one replica in each. No request is split between an engine and itself.
func TestSharedEngines(t *testing.T) {
	both := func(c *config.Config) {
		rs := slices.Clone(c.Pools.Prefill.Replicas)
		for i := range rs {
			rs[i].Shared = true
		}
		c.Pools.Prefill.Replicas, c.Pools.Decode.Replicas = rs, slices.Clone(rs)
	}
	in(t, setup{prefill: 2, decode: 2, config: both}, func(w *world) {
		for i := range 20 {
			p := guardedPrompt(idPrompt(i, 200), "")
			w.exact(p, w.ask(p))
			rec := w.o.ring.Newest(1)[0]
			prefill, _ := strings.CutSuffix(rec.Prefill, "/prefill")
			decode, _ := strings.CutSuffix(rec.Decode, "/decode")
			if prefill == "" || prefill == decode || prefill == rec.Prefill || decode == rec.Decode {
				w.t.Errorf("prefill by %s, decode by %s", rec.Prefill, rec.Decode)
			}
		}
		roles := map[replica.Role]int{}
		for _, r := range w.o.fleet.Endpoints() {
			roles[r.Member.Role]++
		}
		if roles[replica.Prefill] != 2 || roles[replica.Decode] != 2 {
			w.t.Errorf("the fleet has %v, want two of each role", roles)
		}
	})
}

// A reload after the router has ended starts no goroutine and breaks nothing.
func TestReloadAtTheEnd(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for range 20 {
			go func() { _ = w.o.Apply(without(w.cfg, w.d[0].addr)); _ = w.o.Apply(w.cfg) }()
		}
		w.stop()
		err := <-w.ended
		w.apply(without(w.cfg, w.p[0].addr))
		w.apply(w.cfg)
		w.ended <- err
	})
}
