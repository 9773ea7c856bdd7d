package orchestrator

import (
	"strings"
	"testing"
	"time"

	"tandem/internal/config"
	"tandem/internal/enginesim"
)

// Where an engine makes several steps of a piece, which the streams beside it show, prompts go to it whole
// after a few; where it makes one they come in pieces as ever.
func TestStreamsTellHowFinelyAnEngineCuts(t *testing.T) {
	for name, tokens := range map[string]int{"finely": 128, "not at all": 8192} {
		t.Run(name, func(t *testing.T) {
			s := inPieces(func(c *config.Config) {
				longAnswers(c)
				c.Scoring.PrefillPiece = 100 * time.Millisecond
			})
			s.decode = 1
			s.engine = func(_ string, o *enginesim.Options) {
				o.Core.MaxBatchedTokens = tokens
				o.Core.Cost.A = 50e-6
			}
			in(t, s, func(w *world) {
				beside := completion(true)
				beside.body = strings.Replace(beside.body, `"max_tokens":12`, `"ignore_eos":true,"max_tokens":2000`, 1)
				streams := []*pending{w.begin(beside), w.begin(beside)}
				time.Sleep(time.Second)
				for i := range 12 {
					p := completion(true)
					p.body = strings.Replace(p.body, words(120), words(100+i)+words(4000), 1)
					w.exact(p, w.ask(p))
				}
				newest := w.o.ring.newest(1)[0]
				if whole := newest.Pieces == 0; whole != (tokens == 128) {
					t.Errorf("the last prompt came in %d pieces", newest.Pieces)
				}
				for _, s := range streams {
					w.exact(beside, s.end())
				}
			})
		})
	}
}
