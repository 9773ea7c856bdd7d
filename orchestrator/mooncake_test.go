package orchestrator

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// mooncake is a setup whose engines have the Mooncake connector, with strict roles.
func mooncake(s setup) setup {
	engine, change := s.engine, s.config
	s.engine = func(name string, o *enginesim.Options) {
		o.Core.Mooncake = true
		o.Core.Role = map[byte]core.Role{'p': core.Producer, 'd': core.Consumer}[name[0]]
		if engine != nil {
			engine(name, o)
		}
	}
	s.config = func(c *config.Config) {
		if c.Connector.Type = config.Mooncake; change != nil {
			change(c)
		}
	}
	return s
}

// Requests of every API are split, streamed and not, and answered exactly. Leg 1 cannot stop, and leg 2 has
// all four keys. No transfer id is used twice.
func TestMooncakeIsExact(t *testing.T) {
	in(t, mooncake(setup{}), func(w *world) {
		used := map[string]int{}
		for i, p := range []prompt{
			completion(true), completion(false), chat(true), chat(false), messages(true), messages(false),
			responses(true), responses(false), nthChat(1, true),
		} {
			if i%2 == 0 { // the id of a client is none for engines
				p.header = map[string][]string{"X-Request-Id": {"same"}}
			}
			w.wire.forget()
			w.exact(p, w.ask(p))
			one, two := w.legs()
			for _, part := range []string{
				`"do_remote_decode":true`, `"ignore_eos":true`, `"transfer_id":"`,
			} {
				if !strings.Contains(one.body, part) || strings.Contains(one.body, `"stop`) {
					t.Errorf("%s: leg 1 %s", p.path, one.body)
				}
			}
			for _, part := range []string{
				`"do_remote_prefill":true`, `"remote_engine_id":"engine-of-` + one.engine,
				`"remote_bootstrap_addr":"http://` + one.engine + `.internal:8998"`,
				`"transfer_id":"` + transferIDOf(one.body) + `"`,
			} {
				if !strings.Contains(two.body, part) {
					t.Errorf("%s: leg 2 lacks %s: %s", p.path, part, two.body)
				}
			}
			used[transferIDOf(one.body)]++
			if r := w.newest(); r.Mode != "split" {
				t.Errorf("%s: %s", p.path, r.Mode)
			}
		}
		if len(used) != 9 || used[""] > 0 {
			t.Errorf("transfer ids were used again: %v", used)
		}
	})
}

// legs are the only two legs of the newest request.
func (w *world) legs() (one, two sent) {
	w.t.Helper()
	legs := w.posts(false)
	if len(legs) == 2 && legs[0].engine[0] == 'd' { // both were sent at once
		legs[0], legs[1] = legs[1], legs[0]
	}
	if len(legs) != 2 || legs[0].engine[0] != 'p' || legs[1].engine[0] != 'd' {
		w.t.Fatalf("legs %+v", legs)
	}
	return legs[0], legs[1]
}

func transferIDOf(body string) string {
	_, rest, _ := strings.Cut(body, `"transfer_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// A prefill replica whose bootstrap server does not answer gets no request, and the reason is told. It is
// asked again at each scrape.
func TestMooncakeNeedsTheBootstrapServer(t *testing.T) {
	in(t, mooncake(setup{}), func(w *world) {
		w.net.Refuse("p0.internal:8998", true)
		fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.p[0])
		time.Sleep(3 * w.cfg.Pools.Prefill.PollInterval)
		for i := range 6 {
			w.wire.forget()
			w.exact(nthChat(i, true), w.ask(nthChat(i, true)))
			if one, _ := w.legs(); one.engine != "p1" {
				t.Errorf("leg 1 is of %s", one.engine)
			}
		}
		const why = "p0.internal:8000 hands nothing over: its bootstrap server is not known: "
		if got := w.explained(chat(true)); !strings.Contains(got, why) {
			t.Errorf("/debug/explain does not say %q: %s", why, got)
		}
		w.net.Refuse("p0.internal:8998", false)
		time.Sleep(2 * w.cfg.Pools.Prefill.PollInterval)
		fault(enginesim.Fault{Kind: "restart", For: 30 * time.Second})(w, w.p[1])
		w.wire.forget()
		w.exact(chat(true), w.ask(chat(true)))
		legs := w.posts(false)
		two := legs[len(legs)-1]
		if id := `"remote_engine_id":"` + w.p[0].EngineID(0) + `"`; !strings.Contains(two.body, id) {
			t.Errorf("leg 2 lacks %s, the id after the restart: %s", id, two.body)
		}
		time.Sleep(40 * time.Second)
	})
}

// A reload to Mooncake finds no address of any prefill replica. Until the bootstrap servers have answered, no
// prefill leg is sent: nothing would free its blocks. A rejected reload changes nothing.
func TestMooncakeByReload(t *testing.T) {
	nixl := func(c *config.Config) { c.Connector.Type = config.NIXL }
	in(t, mooncake(setup{config: nixl}), func(w *world) {
		cfg := *w.cfg
		cfg.Connector.Type = config.Mooncake
		w.apply(&cfg)
		for range 5 {
			w.wire.forget()
			if got := w.ask(chat(true)); got.status == 200 {
				w.exact(chat(true), got)
			} else if legs := w.posts(false); len(legs) > 0 {
				t.Errorf("status %d after %d legs: %s", got.status, len(legs), got.raw)
			}
			time.Sleep(10 * time.Millisecond)
		}
		w.exact(chat(true), w.ask(chat(true)))
		bad := cfg
		bad.Connector.Type, bad.Pools.Prefill.TLS.CA = config.NIXL, "/no/such/file"
		if w.o.Apply(&bad) == nil {
			t.Fatal("the configuration is not rejected: the test shows nothing")
		}
		if err := w.o.setMembers(&cfg); err != nil { // as when a source of members has news
			t.Fatal(err)
		}
		w.exact(chat(false), w.ask(chat(false)))
		w.blamed(0, 0)
		if n := w.held(); n != 0 {
			t.Errorf("%d blocks are held", n)
		}
	})
}

// A reload from Mooncake to another connector needs no bootstrap server.
func TestMooncakeNoMore(t *testing.T) {
	in(t, mooncake(setup{}), func(w *world) {
		for _, p := range w.p {
			w.net.Refuse(p.name+".internal:8998", true)
		}
		time.Sleep(3 * fleet.ModelsInterval)
		const why = "hands nothing over"
		if got := w.explained(chat(true)); !strings.Contains(got, why) {
			t.Errorf("/debug/explain does not say %q: %s", why, got)
		}
		cfg := *w.cfg
		cfg.Connector.Type = config.NIXL
		w.apply(&cfg)
		if got := w.explained(chat(true)); strings.Contains(got, why) {
			t.Errorf("/debug/explain still says %q: %s", why, got)
		}
	})
}

// Each rank of a prefill engine has an engine id of its own. Leg 1 goes to the rank that leg 2 names.
func TestMooncakeOfRanks(t *testing.T) {
	in(t, mooncake(setup{prefill: 1, engine: func(name string, o *enginesim.Options) {
		if name == "p0" {
			o.DPRanks = 2
		}
	}}), func(w *world) {
		seen := map[string]bool{}
		for i := range 12 {
			w.wire.forget()
			w.exact(nthChat(i, i%2 == 0), w.ask(nthChat(i, i%2 == 0)))
			one, two := w.legs()
			rank := one.header.Get("X-Data-Parallel-Rank")
			n, err := strconv.Atoi(rank)
			if err != nil || !strings.Contains(two.body, `"remote_engine_id":"`+w.p[0].EngineID(n)+`"`) {
				t.Errorf("rank %q, and leg 2 %s", rank, two.body)
			}
			seen[rank] = true
		}
		if len(seen) != 2 {
			t.Errorf("ranks %v", seen)
		}
	})
}

// Prompts of one length on both engines are a matter of their ids: without ids, requests go whole to a decode
// engine.
func TestMooncakeSplitsByIDsOnly(t *testing.T) {
	old := func(_ string, o *enginesim.Options) { o.Version = "0.26.0" }
	in(t, mooncake(setup{engine: old}), func(w *world) {
		for p, mode := range map[string]string{"/v1/completions": "split", "/v1/chat/completions": "unsplit"} {
			asked := map[string]prompt{"/v1/completions": completion(true), "/v1/chat/completions": chat(true)}[p]
			w.exact(asked, w.ask(asked))
			if r := w.newest(); r.Mode != mode {
				t.Errorf("%s is %s, want %s", p, r.Mode, mode)
			}
		}
	})
	unknown := func(c *config.Config) { c.Tokenizer.Source = config.TokensNone }
	in(t, mooncake(setup{config: unknown}), func(w *world) {
		w.exact(completion(true), w.ask(completion(true)))
		if r := w.newest(); r.Mode != "unsplit" {
			t.Errorf("a completion without ids is %s", r.Mode)
		}
	})
}

// A prefill engine that aborts leg 1, as before it sleeps, answers with status 200, and keeps no blocks. A
// decode leg would wait for them, so none is sent, and another replica prefills.
func TestMooncakeOfAnAbortedPrefill(t *testing.T) {
	for _, why := range []string{"abort", "stop"} {
		in(t, mooncake(setup{}), func(w *world) {
			aborted := ""
			w.at("prefill", func(at string) {
				if aborted == "" {
					aborted = at
					says(answerOf(200, "application/json", "", `{"id":"cmpl-1","choices":[{"index":0,"text":"",`+
						`"finish_reason":"`+why+`"}],"usage":{"prompt_tokens":270,"completion_tokens":0}}`))(w, w.by(at))
				}
			})
			w.exact(completion(true), w.ask(completion(true)))
			if r := w.newest(); r.Mode != "split" || r.Prefill == aborted {
				t.Errorf("%s: %s, by %s", why, r.Mode, r.Prefill)
			}
			if n := w.count("tandem_give_back_total", ""); n != 0 {
				t.Errorf("%s: %d blocks that are not there were given back", why, n)
			}
		})
	}
}

// Blocks that no decode leg will read are given back: a refused leg with all four keys frees them. Otherwise
// the prefill engine keeps them for 480 s, longer than settled waits.
func TestMooncakeGivesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		at     string
		does   trouble
		status int
	}{
		"decode is unreachable":         {"decode", vanish, 200},
		"the reply is too old":          {"decode", wait(16 * time.Second), 200},
		"the client leaves":             {"handoff", leaveBetween, clientGone},
		"prefill counts another prompt": {"prefill", miscount, 200},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, mooncake(setup{}), func(w *world) {
				done := false
				w.at(tt.at, func(at string) {
					if !done {
						done = true
						tt.does(w, w.by(at))
					}
				})
				if got := w.ask(completion(true)); tt.status == 200 {
					w.exact(completion(true), got)
				}
				time.Sleep(time.Second)
				if n := w.count("tandem_give_back_total", "freed"); n != 1 || w.held() != 0 {
					t.Errorf("%d leases were given back, %d blocks are held", n, w.held())
				}
			})
		})
	}
}

// The prefill engine is killed between the legs. The decode engine asks a dead engine for the blocks, and
// another pair answers. No block stays held.
func TestMooncakeOfAKilledPrefillEngine(t *testing.T) {
	for _, p := range []prompt{completion(true), chat(false)} {
		in(t, mooncake(setup{}), func(w *world) {
			w.killsPrefillBeforeDecode()
			w.exact(p, w.ask(p))
			if n := w.newest().Attempts; n < 2 {
				t.Errorf("%d attempts: the test shows nothing", n)
			}
			time.Sleep(10 * time.Minute)
			if n := w.held(); n != 0 {
				t.Errorf("%d blocks are held", n)
			}
		})
	}
}

// An ejected replica returns after a canary over both legs.
func TestMooncakeCanary(t *testing.T) {
	for _, leg := range []string{"prefill", "decode"} {
		brief := func(_ string, o *enginesim.Options) { o.Core.Lease = 30 * time.Second } // a 500 strands blocks
		in(t, mooncake(setup{config: atOnce, engine: brief}), func(w *world) {
			bad := w.p[0]
			if leg == "decode" {
				bad = w.d[0]
			}
			fault(enginesim.Fault{Kind: "fail", Count: 3})(w, bad)
			w.crowd(12, 4, 0).want(t, "12 chats", 2)
			if n := w.count("tandem_ejections_total", bad.addr); n == 0 {
				t.Error("nothing was ejected: the test shows nothing")
			}
			time.Sleep(time.Minute)
			if n := w.count("tandem_trials_total", "passed"); n == 0 {
				t.Errorf("no trial of a %s replica has passed", leg)
			}
		})
	}
}

// Clients of unstreamed answers leave. For each, vLLM's decode engine asks for the blocks once more, and the
// prefill engine does not answer by itself. It serves twenty questions at once, and a further prompt would
// wait for the time-out of 480 s.
func TestMooncakeAnswersTheQuestionsOfCutLegs(t *testing.T) {
	for _, stream := range []bool{false, true} {
		in(t, mooncake(setup{prefill: 1, decode: 1, config: longAnswers}), func(w *world) {
			for i := range 30 {
				p := longPrompt(1500)
				if stream {
					p.body = strings.Replace(p.body, `{`, `{"stream":true,`, 1)
				}
				later(time.Second, func(w *world, _ *simulated) { w.leave() })(w, nil)
				if got := w.ask(p); got.status == 200 && !stream {
					t.Fatalf("the client of %d has its answer", i)
				}
			}
			time.Sleep(5 * time.Second)
			if n := w.held(); n != 0 {
				t.Errorf("%d blocks are held", n)
			}
			if got := w.ask(chat(true)); got.took > 10*time.Second {
				t.Errorf("a prompt waits %v for its blocks", got.took)
			} else {
				w.exact(chat(true), got)
			}
			if n := w.count("tandem_rescues_total", "prefilled"); (n == 30) == stream {
				t.Errorf("%d prefill legs were sent again", n)
			}
		})
	}
}
