package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// stepsOf is a world with one decode replica that computes all prompts, so many tokens a step.
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

// streamLong is a long stream.
func streamLong() prompt {
	p := completion(true)
	p.body = strings.Replace(p.body, `"max_tokens":12`, `"ignore_eos":true,"max_tokens":2000`, 1)
	return p
}

// besideLong begins two long streams and has long prompts computed beside them.
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

// Where an engine makes several steps of a piece, which the streams beside it show, prompts go to it whole
// after a few, and people are told; where it makes one they come in pieces as ever.
func TestStreamsTellHowFinelyAnEngineCuts(t *testing.T) {
	for name, tokens := range map[string]int{"finely": 128, "not at all": 8192} {
		t.Run(name, func(t *testing.T) {
			in(t, stepsOf(tokens), func(w *world) {
				streams := w.besideLong()
				newest := w.o.ring.Newest(1)[0]
				if whole := newest.Pieces == 0; whole != (tokens == 128) {
					t.Errorf("the last prompt came in %d pieces", newest.Pieces)
				}
				if n := w.count("tandem_replica_cuts_prompts", ""); (n == 1) != (tokens == 128) {
					t.Errorf("%d replicas are said to cut prompts themselves", n)
				}
				for _, r := range w.o.admin.Live().Replicas {
					if r.CutsPrompts != (tokens == 128 && r.Pool == "decode") {
						t.Errorf("the page says that %s cuts prompts itself: %v", r.Name, r.CutsPrompts)
					}
				}
				for _, s := range streams {
					w.exact(streamLong(), s.end())
				}
			})
		})
	}
}

// A piece that panics is looked at no more: those behind it tell of the engine's steps as ever.
func TestAPieceThatPanicsIsLookedAtNoMore(t *testing.T) {
	in(t, stepsOf(128), func(w *world) {
		beside := w.begin(streamLong())
		time.Sleep(time.Second)
		w.at("piece", func(string) { w.at("piece", nil); panic("a bug") })
		p := completion(true)
		p.body = strings.Replace(p.body, words(120), words(4000), 1)
		if got := w.ask(p); got.status != 500 {
			t.Errorf("status %d of a request whose piece panics", got.status)
		}
		for _, s := range w.besideLong() {
			w.exact(streamLong(), s.end())
		}
		if n := w.count("tandem_replica_cuts_prompts", ""); n != 1 {
			t.Errorf("%d replicas are said to cut prompts themselves, want one", n)
		}
		w.exact(streamLong(), beside.end())
	})
}
