package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// writing is a setup whose engines have MoRI-IO in WRITE mode.
func writing(s setup) setup {
	return ofMoRIIO(s, core.MoRIIOWrite, func(c *config.Config) {
		c.Connector.Type = config.MoRIIOWrite
		c.Connector.HandshakePort, c.Connector.NotifyPort = 5600, 5600
	})
}

// renewed restarts the decode engines that hold blocks, as an operator does, and returns their number.
func (w *world) renewed() (n int) {
	w.t.Helper()
	for _, d := range w.d {
		if d.HeldBlocks() > 0 {
			n++
			fault(enginesim.Fault{Kind: "restart"})(w, d)
		}
	}
	return n
}

// Requests of every API are answered exactly, and no pair of legs has the transfer id of another. Leg 1 names
// the engine that gets leg 2. What cannot be split goes whole to a decode engine.
func TestMoRIIOWriteIsExact(t *testing.T) {
	in(t, writing(setup{}), func(w *world) {
		used := map[string]bool{}
		for _, p := range []prompt{
			completion(false), completion(true), chat(false), chat(true), messages(true), messages(false),
			responses(true), responses(false), nthChat(1, true),
		} {
			w.wire.forget()
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			if len(legs) != 2 || !strings.Contains(legs[0].body, `"remote_host":"`+legs[1].engine+`.internal"`) ||
				!strings.Contains(legs[0].body, `"ignore_eos":true`) {
				t.Fatalf("%s: legs %+v", p.path, legs)
			}
			_, id, _ := strings.Cut(legs[0].body, `"transfer_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			if !strings.Contains(legs[1].body, `"transfer_id":"`+id+`"`) || used[id] {
				t.Errorf("%s: id %s in %s, used before: %v", p.path, id, legs[1].body, used[id])
			}
			used[id] = true
		}
		wrote := uint64(0)
		for _, p := range w.p {
			wrote += p.Stats()[0].NixlTransfers
		}
		if wrote != uint64(len(used)) {
			t.Errorf("%d prompts were written, want %d", wrote, len(used))
		}
		p := post("/v1/completions", `{"model":"sim","max_tokens":4,"prompt":"one two","echo":true}`)
		w.exact(p, w.ask(p))
	})
}

// Whatever happens to a request, it is answered exactly or fails, as with pull. A peer that does not answer
// lets prefill engines with MoRI-IO stand still.
func TestMoRIIOWriteStories(t *testing.T) {
	for _, all := range []struct {
		stories []story
		config  func(*config.Config)
	}{{stories, nothingGoesOn}, {brokenStreams, nil}} {
		for _, s := range all.stories {
			if s.orders != nil && s.orders[0] != connector.Sequential || strings.Contains(s.name, "transfer") {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				in(t, writing(setup{config: all.config}), func(w *world) {
					s.tell(w, chat(len(s.stream) == 0 || s.stream[0]))
					time.Sleep(10 * time.Second) // legs end that must not be cut
					w.renewed()
				})
			})
		}
	}
}

// A request is split only where both legs carry the ids of its prompt: with another length on decode, vLLM's
// engine waits for ever, or answers wrongly. Others go whole to decode.
func TestMoRIIOWriteSplitsByIDsOnly(t *testing.T) {
	old := writing(setup{engine: func(_ string, o *enginesim.Options) { o.Version = "0.26.0" }})
	in(t, old, func(w *world) {
		for i, p := range []prompt{completion(true), chat(true)} {
			w.exact(p, w.ask(p))
			if r, want := w.o.ring.Newest(1)[0], []string{"split", "unsplit"}[i]; r.Mode != want {
				t.Errorf("%s is %s, want %s", r.Path, r.Mode, want)
			}
		}
	})
}

// The decode replica is drained during leg 1, which has named it. It gets leg 2 all the same: P would write
// over blocks of its other requests if another replica got the leg.
func TestMoRIIOWriteNeverMoves(t *testing.T) {
	in(t, writing(setup{}), func(w *world) {
		var named *simulated
		w.at("prefill", func(string) {
			if named == nil {
				named = w.booked("decode")
				w.drain(named)
			}
		})
		w.exact(chat(true), w.ask(chat(true)))
		legs := w.posts(false)
		if len(legs) != 2 || legs[1].engine != named.name {
			t.Errorf("legs %+v, want the second at %s", legs, named.name)
		}
	})
}

// The decode replica leaves the configuration during leg 1. The blocks are given back, and another pair
// answers.
func TestMoRIIOWriteOfADecodeThatLeft(t *testing.T) {
	in(t, writing(setup{}), func(w *world) {
		done := false
		w.at("prefill", func(string) {
			if !done {
				done = true
				w.apply(without(w.cfg, w.booked("decode").addr))
			}
		})
		w.exact(chat(true), w.ask(chat(true)))
		time.Sleep(time.Second)
		if n := w.count("tandem_give_back_total", "freed"); n != 1 || w.held() != 0 {
			t.Errorf("%d leases were given back, %d blocks are held", n, w.held())
		}
	})
}

// The client leaves while its decode leg waits for blocks. The leg is cut when they have come: an earlier cut
// would leave the blocks of decode held until its engine restarts.
func TestMoRIIOWriteCutsNoWaitingLeg(t *testing.T) {
	for _, p := range []prompt{completion(false), chat(true)} {
		slow := writing(setup{engine: func(_ string, o *enginesim.Options) { o.TransferLatency = 3 * time.Second }})
		in(t, slow, func(w *world) {
			asked := w.begin(p)
			time.Sleep(2 * time.Second)
			asked.leave()
			if got := asked.end(); got.status == 200 {
				t.Errorf("answered: %+v", got)
			}
			time.Sleep(5 * time.Second)
			if n := w.held(); n != 0 {
				t.Errorf("%d blocks are held", n)
			}
			if n := w.count("tandem_rescues_total", ""); n != 0 {
				t.Errorf("%d legs count as rescued or leaked", n)
			}
		})
	}
}

// The prefill engine is another process when the first byte is late: nobody will write the blocks. Another
// pair answers. A counter and the log tell of the replica whose blocks stay held.
func TestMoRIIOWriteTellsOfLeaks(t *testing.T) {
	for _, p := range []prompt{completion(true), chat(false)} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, writing(setup{}))
			defer w.close()
			done := false
			w.at("decode", func(string) {
				if !done {
					done = true
					at := w.by(w.posts(false)[0].engine + ".internal:8000")
					later(10*time.Millisecond, fault(enginesim.Fault{Kind: "restart", For: time.Second}))(w, at)
				}
			})
			w.exact(p, w.ask(p))
			if n := w.count("tandem_rescues_total", "leaked"); n != 1 {
				t.Errorf("%d leaks are counted", n)
			}
			if w.renewed() != 1 {
				t.Error("no decode engine holds blocks: the simulator is kinder than vLLM")
			}
		})
	}
}

// A decode engine restarts. Prefill engines that may know its former process cannot write to the new one:
// they make no pair with it, so no leg waits there for ever, until they are restarted themselves.
func TestMoRIIOWriteAfterARestartOfDecode(t *testing.T) {
	in(t, writing(setup{decode: 1}), func(w *world) {
		w.exact(chat(true), w.ask(chat(true)))
		restart := fault(enginesim.Fault{Kind: "restart"})
		restart(w, w.d[0])
		time.Sleep(10 * time.Second)
		for i := range 4 {
			w.failed(nthChat(i, true), w.ask(nthChat(i, true)), 503)
		}
		if w.held() != 0 {
			t.Errorf("%d blocks are held", w.held())
		}
		restart(w, w.p[1])
		time.Sleep(10 * time.Second)
		w.exact(chat(false), w.ask(chat(false)))
		if legs := w.posts(false); legs[len(legs)-2].engine != "p1" {
			t.Errorf("legs %+v", legs)
		}
	})
}

// A decode engine that does not listen where leg 1 would say, or that has several ranks, makes no pair.
func TestMoRIIOWriteNeedsAListener(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  setup
	}{
		{"wrong port", setup{config: func(c *config.Config) { c.Connector.NotifyPort = 5601 }}},
		{"two ranks", setup{engine: func(name string, o *enginesim.Options) {
			if strings.HasPrefix(name, "d") {
				o.DPRanks = 2
			}
		}}},
	} {
		in(t, writing(c.bad), func(w *world) {
			w.failed(chat(true), w.ask(chat(true)), 503)
			if legs := w.posts(false); len(legs) != 0 {
				t.Errorf("%s: legs %+v", c.name, legs)
			}
		})
	}
}

// A reload names ports where no decode engine listens. From now on no leg goes there: the prefill engine
// would stand still, and the decode engine would wait. The former ports make the pairs again.
func TestMoRIIOWriteAfterAReloadOfPorts(t *testing.T) {
	for _, port := range []func(c *config.Connector) *int{
		func(c *config.Connector) *int { return &c.HandshakePort },
		func(c *config.Connector) *int { return &c.NotifyPort },
	} {
		in(t, writing(setup{}), func(w *world) {
			w.exact(chat(true), w.ask(chat(true)))
			w.wire.forget()
			other := *w.cfg
			*port(&other.Connector) = 5601
			w.apply(&other)
			w.failed(nthChat(1, true), w.ask(nthChat(1, true)), 503)
			if legs := w.posts(false); len(legs) != 0 {
				t.Errorf("legs %+v", legs)
			}
			w.apply(w.cfg)
			time.Sleep(10 * time.Second)
			w.exact(chat(true), w.ask(chat(true)))
		})
	}
}

// A canary waits as long for its blocks as a leg of a client does. If its leg were cut earlier, each trial
// would leave blocks held on the decode engine until its restart.
func TestMoRIIOWriteCutsNoCanary(t *testing.T) {
	slow := func(_ string, o *enginesim.Options) { o.TransferLatency = 6 * time.Second }
	in(t, writing(setup{engine: slow}), func(w *world) {
		fault(enginesim.Fault{Kind: "fail", Status: 500, Count: -1})(w, w.d[0])
		for i := range 12 {
			p := nthChat(i, true)
			w.exact(p, w.ask(p))
		}
		if !w.o.planner.Outliers().Active(time.Now()) {
			t.Fatal("the replica was not ejected")
		}
		fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
		time.Sleep(2 * time.Minute)
		is := w.o.planner.Outliers().Look(replica.ID(w.d[0].addr), outlier.Decode, time.Now())
		if is.Out || w.count("tandem_trials_total", "passed") == 0 || w.held() != 0 {
			t.Errorf("%+v, %d blocks are held", is, w.held())
		}
	})
}
