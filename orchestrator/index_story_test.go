package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// indexed sets how both pools learn which blocks are cached.
func indexed(mode string) func(*config.Config) {
	return func(c *config.Config) { c.Pools.Prefill.Index, c.Pools.Decode.Index = mode, mode }
}

// undrawn makes the planner take the cheapest plan even if another one is almost as cheap. The cached part
// of these short prompts saves less than a millisecond, and a prefill of the simulated engines takes
// equally long with any cache.
func (w *world) undrawn() {
	p := policy.Of(w.cfg)
	p.TieAbsolute, p.TieRelative = 0, 0
	w.o.planner.SetPolicy(p)
}

// turn is the n-th turn of a conversation: everything said before, and one more question.
func turn(conversation string, n int) prompt {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	said := []message{{"system", "You are " + conversation + "."}}
	for i := range n {
		said = append(said,
			message{"user", fmt.Sprintf("%s asks %d: %s", conversation, i, words(60+len(conversation)))},
			message{"assistant", "so be it"})
	}
	messages, err := json.Marshal(said[:len(said)-1])
	if err != nil {
		panic(err)
	}
	return prompt{
		path: "/v1/chat/completions",
		body: `{"model":"sim","max_tokens":4,"temperature":0,"messages":` + string(messages) + `}`,
	}
}

// tell asks the n-th turn and returns its record. The answer must be exact.
func (w *world) tell(conversation string, n int) *observe.Record {
	w.t.Helper()
	p := turn(conversation, n)
	w.exact(p, w.ask(p))
	return w.o.ring.Newest(1)[0]
}

// forgetful waits until the index has forgotten its speculated blocks.
func forgetful() { time.Sleep(time.Minute) }

var conversations = []string{"Ada", "Bertram", "Cleopatra", "D", "Evangeline", "Fu"}

// home asks three turns of each conversation. The later turns must go to the replica of the first one,
// with as many cached tokens as predicted.
func home(w *world, matched func(r *observe.Record) bool) {
	first := map[string]string{}
	for n := 1; n <= 3; n++ {
		for _, c := range conversations {
			r := w.tell(c, n)
			if n == 1 {
				first[c] = r.Prefill
				continue
			}
			if r.Prefill != first[c] || !matched(r) {
				w.t.Errorf("turn %d of %s: at %s with %d tokens predicted, %d delivered; turn before: at %s",
					n, c, r.Prefill, r.Captured, r.Delivered, first[c])
			}
			first[c] = r.Prefill
		}
		forgetful()
	}
	if places := distinct(first); len(places) < 2 {
		w.t.Errorf("every conversation went to %v: the test shows nothing", places)
	}
}

func distinct(m map[string]string) map[string]bool {
	set := map[string]bool{}
	for _, v := range m {
		set[v] = true
	}
	return set
}

func TestSecondTurnGoesWhereTheFirstWas(t *testing.T) {
	for name, mode := range map[string]string{
		"approximate": config.IndexApproximate, "events, and none are published": config.IndexEvents,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{prefill: 3, config: indexed(mode)}, func(w *world) {
				w.undrawn()
				home(w,
					func(r *observe.Record) bool {
						return r.Captured > 0 && r.Captured == r.Delivered && r.Decision.Held > 0
					})
				for _, s := range w.o.State().Status().Replicas {
					book, err := json.Marshal(s.Book)
					if want := `"index":"approximate"`; err != nil || !bytes.Contains(book, []byte(want)) {
						w.t.Errorf("%s: %s, want %s", s.Name, book, want)
					}
					if said := bytes.Contains(book, []byte("publishes no events")); said != (mode == config.IndexEvents) {
						w.t.Errorf("%s: %s", s.Name, book)
					}
				}
			})
		})
	}
}

func TestWithoutIndexNothingIsMatched(t *testing.T) {
	in(t, setup{prefill: 3, config: indexed(config.IndexOff)}, func(w *world) {
		delivered := 0
		for n := 1; n <= 3; n++ {
			for _, c := range conversations {
				r := w.tell(c, n)
				if r.Captured > 0 || r.Available > 0 || r.Decision.Held > 0 {
					w.t.Errorf("turn %d of %s: predicted %d cached tokens of %d available ones, want 0",
						n, c, r.Captured, r.Available)
				}
				delivered += r.Delivered
			}
		}
		if delivered == 0 {
			w.t.Error("the engines had nothing cached: the test shows nothing")
		}
		for _, stats := range []kv.Stats{w.o.prefill.IndexStats(), w.o.decode.IndexStats()} {
			if stats.Blocks != 0 || stats.Bytes != 0 || stats.Speculated != 0 {
				w.t.Errorf("an index that is off has %+v", stats)
			}
		}
	})
}

// The index forgets the blocks that a small engine must have evicted.
func TestCapacityOfAReplicaEvicts(t *testing.T) {
	small := setup{prefill: 1, decode: 1, config: indexed(
		config.IndexApproximate,
	), engine: func(name string, o *enginesim.Options) {
		if name == "p0" {
			o.Core.Blocks = 40
		}
	}}
	in(t, small, func(w *world) {
		w.tell("Ada", 1)
		forgetful()
		if r := w.tell("Ada", 1); r.Captured == 0 || r.Captured != r.Delivered {
			w.t.Fatalf("right after it: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
		}
		for i := range 8 {
			w.tell(fmt.Sprintf("Someone else who is number %d", i), 1)
		}
		forgetful()
		if r := w.tell("Ada", 1); r.Captured != 0 || r.Delivered != 0 {
			w.t.Errorf("after eight other prompts: %d tokens predicted, %d delivered, want none",
				r.Captured, r.Delivered)
		}
	})
}

// An engine loses its cache without an event. Its reported cached tokens correct the index.
func TestDeliveredCorrectsWhatWasAssumed(t *testing.T) {
	one := setup{prefill: 1, decode: 1, config: indexed(config.IndexApproximate)}
	in(t, one, func(w *world) {
		stem := func(end string) prompt {
			return prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":4,"temperature":0,"prompt":"` +
				words(100) + " " + strings.Repeat(end+" ", 100) + `"}`}
		}
		ask := func(end string) *observe.Record {
			w.exact(stem(end), w.ask(stem(end)))
			forgetful()
			return w.o.ring.Newest(1)[0]
		}
		ask("one")
		ask("two")
		before := ask("two")
		w.send(w.t.Context(), w.p[0].addr, prompt{path: "/reset_prefix_cache"})
		if r := ask("one"); r.Captured == 0 || r.Delivered != 0 {
			w.t.Fatalf("after the loss: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
		}
		r := ask("two")
		if r.Captured == 0 || r.Captured >= before.Captured || r.Captured != r.Delivered {
			w.t.Errorf(
				"predicted %d tokens of the other branch, before the loss %d, delivered %d: want the shared part",
				r.Captured, before.Captured, r.Delivered,
			)
		}
	})
}

// The index also remembers, and corrects, what a decode replica prefilled itself.
func TestLocalPrefillsAreRememberedAndCorrected(t *testing.T) {
	local := setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		indexed(config.IndexApproximate)(c)
		c.Local = config.LocalAlways
	}}
	in(t, local, func(w *world) {
		w.tell("Ada", 1)
		forgetful()
		if r := w.tell("Ada", 2); r.Mode != "local" || r.Captured == 0 {
			w.t.Errorf("mode %s, %d tokens predicted", r.Mode, r.Captured)
		}
		forgetful()
		w.send(w.t.Context(), w.d[0].addr, prompt{path: "/reset_prefix_cache"})
		if r := w.tell("Ada", 1); r.Captured == 0 || r.Delivered != 0 {
			w.t.Errorf("after the loss: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
		}
		forgetful()
		if r := w.tell("Ada", 2); r.Captured == 0 || r.Captured != r.Delivered {
			w.t.Errorf("the longer turn: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
		}
	})
}

func TestTextIsMatchedWithoutTokens(t *testing.T) {
	without := setup{prefill: 3, config: func(c *config.Config) {
		indexed(config.IndexApproximate)(c)
		c.Tokenizer.Source, c.Tokenizer.ChunkBytes = config.TokensNone, 64
	}}
	in(t, without, func(w *world) {
		w.undrawn()
		home(w, func(r *observe.Record) bool {
			return r.Captured > 0 && !r.Decision.Exact && r.Tokenizer == "estimate" &&
				slices.Contains(r.Decision.Unknown, "tokens: the prefix is matched by its text")
		})
		for _, leg := range w.posts(true) {
			if leg.path != "/v1/chat/completions" || strings.Contains(leg.body, "prompt_token_ids") {
				w.t.Fatalf("%s got %s %s: without exact ids both legs carry the client's own body",
					leg.engine, leg.path, leg.body)
			}
		}
	})
}

// The first turns are matched by tokens. Then the tokenizer fails, and the next turns are matched by text.
func TestTextTakesOverWhenTheTokenizerFails(t *testing.T) {
	patient := setup{prefill: 3, config: func(c *config.Config) {
		c.Tokenizer.ChunkBytes, c.Timeouts.Tokenize = 64, 100*time.Millisecond
		// With costs in seconds, an engine that froze during a prompt counts as slow, which costs more than the
		// match saves.
		c.Experimental.Scoring.Units = config.Raw
	}}
	in(t, patient, func(w *world) {
		first := map[string]string{}
		for _, c := range conversations {
			r := w.tell(c, 1)
			if !r.Decision.Exact {
				w.t.Fatalf("the first turn of %s has no exact ids", c)
			}
			first[c] = r.Prefill
		}
		forgetful()
		for _, c := range conversations {
			for _, e := range append(w.p, w.d...) { // longer than the tokenize timeout
				fault(enginesim.Fault{Kind: "freeze", For: 500 * time.Millisecond})(w, e)
			}
			if r := w.tell(c, 2); r.Tokenizer != "estimate" || r.Prefill != first[c] || r.Captured == 0 {
				w.t.Errorf("second turn of %s: sent to %s, %d tokens predicted, first turn at %s; ids from %s",
					c, r.Prefill, r.Captured, first[c], r.Tokenizer)
			}
		}
		if len(distinct(first)) < 2 {
			w.t.Error("every conversation went to one replica: the test shows nothing")
		}
	})
}

func TestTextStaysOut(t *testing.T) {
	for name, edit := range map[string]func(*config.Config){
		"index off":       indexed(config.IndexOff),
		"chunk_bytes 0":   func(c *config.Config) { c.Tokenizer.ChunkBytes = 0 },
		"another salt":    func(*config.Config) {},
		"another adapter": func(*config.Config) {},
	} {
		in(t, setup{
			config: func(c *config.Config) { edit(c); c.Tokenizer.Source = config.TokensNone },
			engine: func(_ string, o *enginesim.Options) { o.Adapters = []string{"ad"} },
		}, func(w *world) {
			w.tell("Ada", 1)
			p := turn("Ada", 1)
			switch name {
			case "another salt":
				p.body = strings.Replace(p.body, `{`, `{"cache_salt":"s",`, 1)
			case "another adapter":
				p.body = strings.Replace(p.body, `"sim"`, `"ad"`, 1)
			}
			w.exact(p, w.ask(p))
			if r := w.o.ring.Newest(1)[0]; r.Captured > 0 {
				w.t.Errorf("%s: %d tokens predicted, want 0", name, r.Captured)
			}
		})
	}
}

// A reload changes the index modes during a stream. The stream is not affected.
func TestReloadOfModes(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: indexed(config.IndexApproximate)}, func(w *world) {
		to := func(mode string) {
			cfg := *w.cfg
			indexed(mode)(&cfg)
			if err := w.o.Apply(&cfg); err != nil {
				w.t.Fatal(err)
			}
			if trust := w.o.prefill.Status(time.Now())[0].Trust; (trust == replica.Off) != (mode == config.IndexOff) {
				w.t.Errorf("%s: the index is %v", mode, trust)
			}
		}
		asked := func(when string, some bool) {
			t.Helper()
			if r := w.tell("Ada", 1); r.Captured > 0 != some {
				w.t.Errorf("%s: %d tokens predicted", when, r.Captured)
			}
			forgetful()
		}
		asked("at first", false)
		asked("again", true)
		p := chat(true)
		w.exact(p, w.ask(p, func(event int) {
			if event == 3 {
				to(config.IndexOff)
			}
		}))
		asked("off", false)
		asked("still off", false)
		to(config.IndexApproximate)
		asked("approximate again", false)
		asked("approximate, learnt", true)
		to(config.IndexEvents) // no engine publishes events here
		asked("by events", false)
		asked("by events, approximated", true)
		if n := len(w.o.fleet.Watchers()); n != 2 || !w.o.fleet.Watchers()[0].Up() {
			w.t.Errorf("%d watchers after the reloads", n)
		}
	})
}

// Without KV events, the index notices a restart of an engine by its start time.
func TestARestartForgetsWhatWasAssumed(t *testing.T) {
	one := setup{prefill: 1, decode: 1, config: indexed(config.IndexApproximate)}
	in(t, one, func(w *world) {
		w.tell("Ada", 1)
		forgetful()
		w.p[0].Close()
		w.p[0] = w.engine(one, "p0")
		forgetful()
		if r := w.tell("Ada", 1); r.Captured != 0 || r.Delivered != 0 {
			w.t.Errorf("after the restart: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
		}
	})
}
