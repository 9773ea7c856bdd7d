package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// An engine that may have cached wrong blocks is no source: the wrong blocks are in its host memory under the
// names of the right ones.
func TestWrongBlocksAreNotPulled(t *testing.T) {
	s := slowPair(30 * time.Second)
	engine, change := s.engine, s.config
	s.decode = 2
	s.engine = func(name string, o *enginesim.Options) {
		engine(name, o)
		o.Core.Blocks = 140
		if name[0] == 'd' {
			o.Core.Blocks = 512
			o.Core.Tier, o.P2P = core.Tier{Blocks: 4096}, name+".internal:5710"
		}
	}
	s.config = func(c *config.Config) {
		change(c)
		c.Scoring.KVBytesPerToken = 1024
		for i := range c.Pools.Decode.Replicas {
			c.Pools.Decode.Replicas[i].PullPort = 5710
		}
	}
	in(t, s, func(w *world) {
		w.drain(w.d[1])
		p := guardedPrompt(idPrompt(1, 2000), `,"stream":true`)
		coreStands(w)
		w.exact(p, w.ask(p))
		if plain := w.send(w.t.Context(), w.d[0].addr, p); plain.text == w.right(p).text {
			t.Error("the decode engine's cache is not poisoned: this test shows nothing")
		}
		w.undrain(w.d[1])
		w.drain(w.d[0])
		c := *w.cfg
		c.Local = config.LocalAlways
		w.apply(&c)
		w.wire.forget()
		w.exact(p, w.ask(p))
		which, legs := w.asking(w.d[1])
		if on := w.newest().Decision.Plans[0].OnDecode; on.Pulled.Tokens > 0 || len(which) > 0 || legs == 0 {
			t.Errorf("the plan pulls %d tokens from %q, and legs %v of %d ask for them", on.Pulled.Tokens, on.Source,
				which, legs)
		}
	})
}
