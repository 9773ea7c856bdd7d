package orchestrator

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// storing is a setup whose engines share a store, in the place of NIXL.
func storing(store *core.Store, s setup) setup {
	engine, change := s.engine, s.config
	s.engine = func(name string, o *enginesim.Options) {
		if name == "whole" {
			return
		}
		o.Store = store
		o.Core.Tier.Read = 100 * time.Microsecond // and saves end with the step, as those of LMCache
		if engine != nil {
			engine(name, o)
		}
	}
	s.config = func(c *config.Config) {
		if c.Connector.Type = config.Offloading; change != nil {
			change(c)
		}
	}
	return s
}

// Requests of every API are split over a store. The decode engine loads what the prefill engine has saved,
// by its own prompt: no leg bears transfer parameters.
func TestStoreIsExact(t *testing.T) {
	in(t, storing(core.NewStore(10_000), setup{}), func(w *world) {
		loaded := uint64(0)
		for _, p := range []prompt{
			completion(true), completion(false), chat(true), chat(false), messages(true), messages(false),
			responses(true), responses(false), nthChat(1, true),
		} {
			p.body = strings.Replace(p.body, "word0", fmt.Sprint("word", len(p.body)), 1)
			w.wire.forget()
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			if len(legs) != 2 || !strings.HasPrefix(legs[0].engine, "p") || !strings.HasPrefix(legs[1].engine, "d") {
				t.Fatalf("%s: legs %+v", p.path, legs)
			}
			for _, leg := range legs {
				if strings.Contains(leg.body, "kv_transfer_params") {
					t.Errorf("%s of %s has transfer parameters: %s", leg.path, leg.engine, leg.body)
				}
			}
			before := loaded
			loaded = 0
			for _, d := range w.d {
				loaded += d.Stats()[0].Restored
			}
			if r := w.newest(); r.Mode != "split" || r.Moved < 16 || r.Missed != 0 || loaded == before {
				t.Errorf("%s: %s, %d tokens moved, %d missed, %d blocks loaded", p.path, r.Mode, r.Moved, r.Missed,
					loaded-before)
			}
		}
	})
}

// The store has nothing of what the prefill engine computed, because saves are slow, or because the store is
// small: the answer is right, and the record and the metrics tell how much was computed again.
func TestStoreThatDeliversNothingIsSeen(t *testing.T) {
	slow := func(_ string, o *enginesim.Options) { o.Core.Tier.Write = time.Minute }
	for name, s := range map[string]setup{
		"slow":  storing(core.NewStore(10_000), setup{prefill: 1, decode: 1, engine: slow}),
		"small": storing(core.NewStore(1), setup{prefill: 1, decode: 1}),
	} {
		in(t, s, func(w *world) {
			p := longPrompt(12)
			p.body = strings.Replace(p.body, idPrompt(1, 120), idPrompt(1, 400), 1)
			w.exact(p, w.ask(p))
			r := w.newest()
			if r.Mode != "split" || r.Moved > 16 || r.Missed < 368 {
				t.Errorf("%s: %s, %d tokens moved, %d missed, want 0 and 384", name, r.Mode, r.Moved, r.Missed)
			}
			if n := w.count("tandem_handoff_tokens_total", "missed"); n != r.Missed {
				t.Errorf("%s: %d missed tokens counted, want %d", name, n, r.Missed)
			}
		})
	}
}

// The store forgets blocks while a decode engine loads them. The decode engine computes them.
func TestStoreForgetsDuringALoad(t *testing.T) {
	store := core.NewStore(10_000)
	slow := func(_ string, o *enginesim.Options) { o.Core.Tier.Read = 50 * time.Millisecond }
	in(t, storing(store, setup{prefill: 1, decode: 1, engine: slow}), func(w *world) {
		w.at("decode", func(string) { go func() { time.Sleep(60 * time.Millisecond); store.Forget() }() })
		for _, p := range []prompt{completion(true), chat(false)} {
			w.exact(p, w.ask(p))
		}
	})
}

// Two tenants send the same prompt with salts of their own. Neither is given blocks of the other.
func TestStoreKeepsTenantsApart(t *testing.T) {
	in(t, storing(core.NewStore(10_000), setup{prefill: 1, decode: 1}), func(w *world) {
		for _, salt := range []string{"a", "b"} {
			p := chat(false)
			p.body = strings.Replace(p.body, `"model"`, `"cache_salt":"`+salt+`","model"`, 1)
			w.exact(p, w.ask(p))
			for _, leg := range w.posts(false) {
				if !strings.Contains(leg.body, `"cache_salt":"`+salt+`"`) {
					t.Errorf("a leg to %s has not the salt %q: %s", leg.engine, salt, leg.body)
				}
			}
			if r := w.newest(); r.Delivered != 0 {
				t.Errorf("the prefill engine had %d tokens of the tenant %q cached", r.Delivered, salt)
			}
			w.wire.forget()
		}
	})
}

// storePrompt is a prompt of 400 tokens, 25 blocks.
func storePrompt() prompt {
	p := longPrompt(12)
	p.body = strings.Replace(p.body, idPrompt(1, 120), idPrompt(1, 400), 1)
	return p
}

// elsewhere asks for p when the decode replicas that have had it take no more requests, and returns the names
// of the engines that got a leg.
func (w *world) elsewhere(p prompt) (legs string) {
	w.t.Helper()
	for _, d := range w.d {
		if w.sentTo(d) > 0 {
			w.drain(d)
		}
	}
	w.wire.forget()
	w.exact(p, w.ask(p))
	for _, leg := range w.posts(false) {
		legs += leg.engine[:1]
	}
	return legs
}

// A prompt that the store has goes to a decode replica alone, although "local" is "never". The decode
// engine's report verifies the store.
func TestStoreThatHasThePromptSparesThePrefillLeg(t *testing.T) {
	for name, tt := range map[string]struct {
		config func(*config.Config)
		change func(string) string // of the second prompt
		wait   time.Duration
		legs   string
	}{
		"the same prompt": {legs: "d"},
		"another end in the last block": {legs: "d", change: func(body string) string {
			return strings.Replace(body, idPrompt(1, 400), strings.Replace(idPrompt(1, 399), "]", ",7]", 1), 1)
		}},
		"another block": {legs: "pd", change: func(body string) string {
			return strings.Replace(body, idPrompt(1, 400), idPrompt(1, 417), 1)
		}},
		"another tenant": {legs: "pd", change: func(body string) string {
			return strings.Replace(body, `"model"`, `"cache_salt":"b","model"`, 1)
		}},
		"much later":       {legs: "pd", wait: 11 * time.Minute},
		"chunks of tokens": {legs: "d", config: func(c *config.Config) { c.Connector.Type = config.LMCache }},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, storing(core.NewStore(10_000), setup{prefill: 1, config: tt.config}), func(w *world) {
				p := storePrompt()
				w.exact(p, w.ask(p))
				if n := w.count("tandem_prefill_legs_left_out_total", ""); n != 0 {
					t.Errorf("%d legs were left out before the store had anything", n)
				}
				time.Sleep(tt.wait)
				if tt.change != nil {
					p.body = tt.change(p.body)
				}
				if legs := w.elsewhere(p); legs != tt.legs {
					t.Fatalf("legs to %q, want %q: %s", legs, tt.legs, w.newest().Reason)
				}
				if tt.legs == "pd" {
					return
				}
				r := w.newest()
				if r.Missed != 0 || r.Delivered < 384 || !strings.Contains(r.Reason, "the store has ") {
					t.Errorf("%d tokens cached, %d missed: %s", r.Delivered, r.Missed, r.Reason)
				}
				if n := w.count("tandem_prefill_legs_left_out_total", ""); n != 1 {
					t.Errorf("%d legs were left out, want 1", n)
				}
			})
		})
	}
}

// The store has forgotten the prompt: the answer is right, the miss is counted, and the next request with
// this prompt is prefilled. Other prompts are believed to be there.
func TestStoreThatForgotIsDistrusted(t *testing.T) {
	store := core.NewStore(10_000)
	in(t, storing(store, setup{prefill: 1, decode: 3}), func(w *world) {
		p := storePrompt()
		w.exact(p, w.ask(p))
		store.Forget()
		if legs := w.elsewhere(p); legs != "d" {
			t.Fatalf("legs to %q, want one to decode", legs)
		}
		if r := w.newest(); r.Missed != 384 || w.count("tandem_handoff_tokens_total", "missed") != 384 {
			t.Errorf("%d tokens missed, want 384", r.Missed)
		}
		if legs := w.elsewhere(p); legs != "pd" {
			t.Errorf("legs to %q after the store had nothing, want both", legs)
		}
	})
}

// An engine fails at a prompt that the store should have. The next attempt prefills.
func TestAttemptAfterALeftOutLegPrefills(t *testing.T) {
	in(t, storing(core.NewStore(10_000), setup{prefill: 1, decode: 3}), func(w *world) {
		p := storePrompt()
		w.exact(p, w.ask(p))
		var once sync.Once
		w.at("decode", func(replica string) {
			once.Do(func() { fault(enginesim.Fault{Kind: "fail", Count: 1})(w, w.by(replica)) })
		})
		if legs := w.elsewhere(p); !strings.HasPrefix(legs, "dp") {
			t.Errorf("legs to %q, want decode alone and then both", legs)
		}
	})
}

// What a store did not deliver is counted from the decode engine's report alone: the router believes that the
// engine holds the prompt, and the engine has forgotten it.
func TestMissedTokensAreCountedFromTheReport(t *testing.T) {
	slow := func(_ string, o *enginesim.Options) { o.Core.Tier.Write = time.Minute }
	in(t, storing(core.NewStore(10_000), setup{prefill: 1, decode: 1, engine: slow}), func(w *world) {
		p := storePrompt()
		w.exact(p, w.ask(p))
		if !w.d[0].ResetPrefixCache() {
			t.Fatal("the engine keeps its cache")
		}
		w.exact(p, w.ask(p))
		if r := w.newest(); r.Decision.Held < 384 || r.Missed != 384 {
			t.Errorf("%d tokens missed of 384, %d believed to be held", r.Missed, r.Decision.Held)
		}
	})
}

// The save of a prompt ends after its decode engine has looked. The prefill engine's event tells that the
// store has it now, in either form. It is believed once decode engines have read from the store.
func TestStoreIsLearnedFromEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		tier  kv.Tier
		seeds bool // each engine has another PYTHONHASHSEED
		legs  string
	}{
		"MooncakeStore":    {tier: kv.Shared, legs: "d"},
		"files":            {tier: kv.Disk, legs: "d"},
		"no events":        {legs: "pd"},
		"other hash seeds": {tier: kv.Shared, seeds: true, legs: "pd"},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			engine := func(name string, o *enginesim.Options) {
				o.Core.Tier.Write, o.Core.Tier.Announces = time.Millisecond, tt.tier
				if tt.seeds {
					o.Core.HashSeed = name
				}
				if name == "p0" {
					o.OnEvents = func(b *kvevents.EncodeBatch) {
						w.o.prefill.Apply(replica.ID(w.p[0].addr), &kv.Batch{Events: b.Events})
					}
				}
			}
			in(t, storing(core.NewStore(10_000), setup{prefill: 1, decode: 4, engine: engine}), func(is *world) {
				w = is
				w.o.prefill.SetTrust(replica.ID(w.p[0].addr), replica.Live) // so that nothing is assumed
				early, late := storePrompt(), storePrompt()
				other := completion(false)
				w.exact(early, w.ask(early))
				w.elsewhere(early) // reads from the store
				late.body = strings.Replace(late.body, idPrompt(1, 400), idPrompt(5, 400), 1)
				w.exact(late, w.ask(late))
				if r := w.newest(); r.Missed == 0 {
					t.Fatal("the store had everything at once")
				}
				w.exact(other, w.ask(other)) // an idle engine says nothing
				if legs := w.elsewhere(late); legs != tt.legs {
					t.Errorf("legs to %q, want %q: %s", legs, tt.legs, w.newest().Reason)
				}
			})
		})
	}
}

// LMCache tells no adapters apart. An engine that has loaded an adapter gets no request any more, and the
// status says why.
func TestLMCacheTakesNoAdapters(t *testing.T) {
	lmcache := func(c *config.Config) { c.Connector.Type = config.LMCache }
	loads := func(_ string, o *enginesim.Options) { o.LoadAdapters = true }
	in(t, storing(core.NewStore(10_000), setup{config: lmcache, engine: loads}), func(w *world) {
		at := "http://" + w.d[0].addr
		answer, err := w.front.Post(at+"/v1/load_lora_adapter", "application/json",
			strings.NewReader(`{"lora_name":"ad","lora_path":"/ad"}`))
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		answer.Body.Close()
		time.Sleep(3 * fleet.ModelsInterval)
		w.wire.forget()
		for range 4 {
			w.exact(storePrompt(), w.ask(storePrompt()))
		}
		if got := w.ask(adapted(storePrompt(), "ad")); got.status != 404 {
			t.Errorf("the adapter: %d %s", got.status, got.raw)
		}
		for _, leg := range w.posts(false) {
			if leg.engine == "d0" && strings.Contains(leg.body, idPrompt(1, 400)) { // no probe
				t.Errorf("the engine with the adapter got %s", leg.path)
			}
		}
		if status := w.get("admin", "/debug/replicas"); !strings.Contains(status.raw, "it has the adapter ad") {
			t.Errorf("the status lacks the reason: %s", status.raw)
		}
	})
}
