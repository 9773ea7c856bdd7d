package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// asked returns p with another word, so that no request had this prompt before.
func (p prompt) asked(word string) prompt {
	p.body = strings.Replace(p.body, "word0", word, 1)
	return p
}

// nextRelease gives an engine the next release of its model: the same name with another tokenizer.
func nextRelease(o *enginesim.Options) { o.Wrong.Tokenizer, o.Version = "next", "0.33.0" }

// During a rolling upgrade, engines of two releases serve one model name. Each answer must equal that of
// its decode engine alone, and the legs must carry token ids of that engine's release, whichever release
// made the known ids. The releases differ in the version, in the ids of a sample text, or only in the
// configured revision.
// releases apart is the version, the ids of a sample text, or the revision of a replica alone.
func TestIDsStayWithTheirRelease(t *testing.T) {
	otherTokenizer := func(o *enginesim.Options) { o.Wrong.Tokenizer = "next" }
	mute := enginesim.Fault{Kind: "fail", Path: "/tokenize", Status: 404, Count: -1}
	revisions := func(c *config.Config) {
		for _, pool := range [][]config.Replica{c.Pools.Prefill.Replicas, c.Pools.Decode.Replicas} {
			pool[0].Revision, pool[1].Revision = "one", "two"
		}
	}
	for name, mixed := range map[string]setup{
		"version": {engine: func(name string, o *enginesim.Options) {
			if name == "p1" || name == "d1" {
				nextRelease(o)
			}
		}},
		"sample": {engine: func(name string, o *enginesim.Options) {
			if name == "p1" || name == "d1" {
				otherTokenizer(o)
			}
		}},
		"revision": {config: revisions, engine: func(name string, o *enginesim.Options) {
			if o.Faults = append(o.Faults, mute); name == "p1" || name == "d1" {
				otherTokenizer(o)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) { in(t, mixed, (*world).answersOfTheirRelease) })
	}
}

// answersOfTheirRelease asks new prompts, each twice. In the end both releases must have answered.
func (w *world) answersOfTheirRelease() {
	w.t.Helper()
	at := map[string]int{}
	for _, word := range []string{"one", "two", "three", "four", "five", "six", "seven", "eight"} {
		for _, p := range []prompt{completion(false), chat(true), messages(false), responses(true)} {
			p = p.asked(word)
			for range 2 { // the second time with ids from memory
				w.wire.forget()
				got, rec := w.ask(p), w.o.ring.Newest(1)[0]
				legs := w.posts(false)
				if len(legs) != 2 || legs[0].path != "/v1/completions" || strings.Contains(legs[0].body, "word1") {
					w.t.Fatalf("%s: %d legs, want two with ids", p.path, len(legs))
				}
				want := w.send(w.t.Context(), rec.Decode, p)
				if got.status != 200 || got.text == "" || got.text != want.text {
					w.t.Errorf("%s on %s: %d %q, want %q as from the engine itself",
						p.path, rec.Decode, got.status, got.text, want.text)
				}
				at[rec.Decode]++
			}
		}
	}
	if len(at) != 2 {
		w.t.Errorf("answers come from %v, want both releases", at)
	}
}

// No engine of the decode replica's release returns exact token ids. Then each leg's engine tokenizes the
// client's body itself, and a request that can be split only with ids goes unchanged to one replica.
func TestNobodyOfTheReleaseTellsIDs(t *testing.T) {
	mixed := setup{prefill: 2, decode: 1, engine: func(name string, o *enginesim.Options) {
		if name != "p0" {
			nextRelease(o)
		}
		o.ScaleOut = name != "p1"
	}}
	in(t, mixed, func(w *world) {
		odd := chat(false)
		const unknown = `"reasoning_effort":"low",` // unknown to /tokenize
		odd.body = strings.Replace(odd.body, `"max_tokens"`, unknown+`"max_tokens"`, 1)
		for _, word := range []string{"one", "two", "three", "four", "five", "six", "seven", "eight"} {
			for _, p := range []prompt{odd, messages(true)} {
				p = p.asked(word)
				w.wire.forget()
				w.exact(p, w.ask(p))
				legs := w.posts(false)
				if want := map[string]int{odd.path: 2, "/v1/messages": 1}[p.path]; len(legs) != want {
					t.Fatalf("%s: %d legs, want %d", p.path, len(legs), want)
				}
				for _, leg := range legs {
					if leg.path != p.path || strings.Contains(leg.body, "prompt_token_ids") {
						t.Errorf("%s: the leg to %s on %s carries token ids of another release", p.path, leg.engine, leg.path)
					}
				}
			}
		}
		if w.count("tandem_token_ids_total", "render") == 0 {
			t.Error("the other release has returned no ids: the test shows nothing")
		}
	})
}

// Token ids from an engine are not used after its process has ended, whether it restarted at its address
// or other servers replaced it.
func TestIDsGoWithTheirEngine(t *testing.T) {
	next := setup{engine: func(_ string, o *enginesim.Options) { o.Wrong.Tokenizer = "next" }}
	ways := map[string]func(w *world){
		"a restart": func(w *world) {
			for _, e := range []*simulated{w.p[0], w.d[0]} {
				e.Close()
			}
			time.Sleep(20 * time.Second)
			w.p[0], w.d[0] = w.engine(next, "p0"), w.engine(next, "d0")
		},
		"other servers": func(w *world) {
			p, d := w.engine(next, "p9"), w.engine(next, "d9")
			cfg := *w.cfg
			cfg.Pools.Prefill.Replicas, cfg.Pools.Decode.Replicas = []config.Replica{
				{URL: p.URL()},
			}, []config.Replica{{URL: d.URL()}}
			if err := w.o.Apply(&cfg); err != nil {
				w.t.Fatal(err)
			}
			w.p, w.d = append(w.p, p), append(w.d, d)
		},
	}
	for name, replace := range ways {
		t.Run(name, func(t *testing.T) {
			in(t, setup{prefill: 1, decode: 1}, func(w *world) {
				for _, p := range []prompt{completion(false), chat(false)} {
					w.exact(p, w.ask(p))
				}
				replace(w)
				w.whole.Close()
				w.whole = w.engine(next, "whole")
				time.Sleep(20 * time.Second)
				for _, p := range []prompt{completion(false), chat(false)} {
					w.exact(p, w.ask(p))
				}
			})
		})
	}
}
