package orchestrator

import (
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Engines of hybrid models announce several KV cache groups in one stream. They can use only the part of a
// cached prefix that all groups have. In every turn the router predicts that part for the prefill engine,
// over real sockets.
func TestHybridEnginesArePredicted(t *testing.T) {
	for name, groups := range map[string][]core.Group{
		"three Mamba groups, told first": {
			{Kind: "mamba", BlockSize: 64},
			{Kind: "mamba", BlockSize: 64},
			{Kind: "mamba", BlockSize: 64},
			{Kind: "full_attention"},
		},
		"a sliding window": {{Kind: "full_attention"}, {Kind: "sliding_window", Window: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			s := streams(setup{prefill: 1, decode: 1})
			inner := s.engine
			s.engine = func(name string, o *enginesim.Options) {
				inner(name, o)
				o.Core.Groups = groups
			}
			w := newWorld(t, s)
			defer w.close()
			until(t, "both streams live", func() bool { return w.live() == 2 })
			found := 0
			for turn := range 4 {
				for _, c := range []string{"Ada", "Bertram", "Ada"} {
					r := w.tell(c, turn+1)
					if r.Captured != r.Delivered {
						t.Errorf("turn %d of %s: predicted %d cached tokens, the engine had %d",
							turn, c, r.Captured, r.Delivered)
					}
					found += r.Delivered
				}
			}
			if found == 0 {
				t.Error("nothing was cached: the test shows nothing")
			}
		})
	}
}
