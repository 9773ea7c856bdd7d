package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// stepsOf is the setup of one decode replica that computes all prompts, with this many tokens per step.
func stepsOf(tokens int) setup {
	s := inPieces(func(c *config.Config) {
		longAnswers(c)
		c.Scoring.PrefillPiece = 100 * time.Millisecond
	})
	s.decode = 1
	s.engine = func(_ string, o *enginesim.Options) {
		o.Core.MaxBatchedTokens = tokens
		o.Core.Cost.A = 50e-6
	}
	return s
}

// streamLong is a request for a long stream.
func streamLong() prompt {
	p := completion(true)
	p.body = strings.Replace(p.body, `"max_tokens":12`, `"ignore_eos":true,"max_tokens":2000`, 1)
	return p
}

// besideLong starts two long streams, and then runs requests with long prompts.
func (w *world) besideLong() (streams []*pending) {
	streams = []*pending{w.begin(streamLong()), w.begin(streamLong())}
	time.Sleep(time.Second)
	for i := range 12 {
		p := completion(true)
		p.body = strings.Replace(p.body, words(120), words(100+i)+words(4000), 1)
		w.exact(p, w.ask(p))
	}
	return streams
}

// If an engine splits a piece into several steps, its other streams show it. After a few prompts the
// router then sends prompts whole, and shows that fact. If the engine computes a piece in one step,
// prompts come in pieces as before.
func TestStreamsTellHowFinelyAnEngineCuts(t *testing.T) {
	for name, tokens := range map[string]int{"finely": 128, "not at all": 8192} {
		t.Run(name, func(t *testing.T) {
			in(t, stepsOf(tokens), func(w *world) {
				streams := w.besideLong()
				newest := w.o.ring.Newest(1)[0]
				if whole := newest.Pieces == 0; whole != (tokens == 128) {
					t.Errorf("the last prompt was sent in %d pieces", newest.Pieces)
				}
				if n := w.count("tandem_replica_cuts_prompts", ""); (n == 1) != (tokens == 128) {
					t.Errorf("%d replicas are shown to cut prompts themselves", n)
				}
				for _, r := range w.o.admin.Live().Replicas {
					if r.CutsPrompts != (tokens == 128 && r.Pool == "decode") {
						t.Errorf("the page shows for %s that it cuts prompts itself: %v", r.Name, r.CutsPrompts)
					}
				}
				for _, s := range streams {
					w.exact(streamLong(), s.end())
				}
			})
		})
	}
}

// After a panic during a piece, later pieces still show the engine's steps.
func TestAPieceThatPanicsIsLookedAtNoMore(t *testing.T) {
	in(t, stepsOf(128), func(w *world) {
		beside := w.begin(streamLong())
		time.Sleep(time.Second)
		w.at("piece", func(string) { w.at("piece", nil); panic("a bug") })
		p := completion(true)
		p.body = strings.Replace(p.body, words(120), words(4000), 1)
		if got := w.ask(p); got.status != 500 {
			t.Errorf("status %d after a panic during a piece, want 500", got.status)
		}
		for _, s := range w.besideLong() {
			w.exact(streamLong(), s.end())
		}
		if n := w.count("tandem_replica_cuts_prompts", ""); n != 1 {
			t.Errorf("%d replicas are shown to cut prompts themselves, want 1", n)
		}
		w.exact(streamLong(), beside.end())
	})
}
