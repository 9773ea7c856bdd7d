package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// newAdapters is the setup of a fleet in which the renewed decode replicas have other weights under the
// adapter's name. No prefill replica has either weights, so decode replicas compute all prompts of the
// adapter.
func newAdapters(decode int, renewed ...string) setup {
	return setup{decode: decode, config: func(c *config.Config) {
		c.Local = config.LocalAuto
	}, engine: func(name string, o *enginesim.Options) {
		switch {
		case name[0] == 'p':
			o.Adapters = []string{"ad=/adapters/of-prefill"}
		case slices.Contains(renewed, name):
			o.Adapters = []string{"ad=/adapters/ad-2"}
		default:
			o.Adapters = []string{"ad"}
		}
	}}
}

// nthAdapted is the n-th of the greedy streams for the adapter.
func nthAdapted(n int) prompt {
	p := adapted(greedy("/v1/completions", 12, ""), "ad")
	p.body = strings.Replace(p.body, "word0", fmt.Sprint("word", n), 1)
	return p
}

// A broken stream of an adapter continues only on a replica with the same weights, even if other replicas
// are equally near.
func TestAStreamOfAnAdapterGoesOnWithTheSameWeights(t *testing.T) {
	renewed := []string{"d2", "d3"}
	in(t, unejected(newAdapters(4, renewed...)), func(w *world) {
		for i := range 12 {
			p := nthAdapted(i)
			var at []string
			w.at("decode", func(addr string) {
				at = append(at, w.by(addr).name)
				if len(at) == 1 {
					cutStream(w, w.by(addr))
				}
			})
			got := w.ask(p)
			if len(at) != 2 || at[0] == at[1] {
				w.t.Fatalf("stream %d was at %v, want two different replicas", i, at)
			}
			if slices.Contains(renewed, at[0]) != slices.Contains(renewed, at[1]) {
				t.Errorf("stream %d began at %s and continued at %s, which has other weights", i, at[0], at[1])
			}
			w.at("decode", nil)
			if whole := w.send(w.t.Context(), at[0]+".internal:8000", p); got.text != whole.text {
				t.Errorf("stream %d: got %q from %v, want %q", i, got.text, at, whole.text)
			}
		}
	})
}

// If no other replica has the weights of the answer, the stream ends with the same error as without a try
// to continue it.
func TestAStreamOfAnAdapterThatNobodyElseHasEnds(t *testing.T) {
	in(t, newAdapters(2, "d1"), func(w *world) {
		var began, other *simulated
		w.at("decode", func(addr string) {
			if began == nil {
				began, other = w.by(addr), w.d[0]
				if began == other {
					other = w.d[1]
				}
			}
		})
		p := nthAdapted(0)
		got := w.ask(p, func(event int) {
			if event == 4 {
				vanish(w, began)
			}
		})
		w.net.Refuse(began.addr, false)
		if got.fail.Code != 502 || got.dones != 1 || w.count("tandem_continued_total", "failed") != 1 {
			t.Errorf("error %+v, %d end marks, %q; want error 502 and 1 end mark", got.fail, got.dones, got.raw)
		}
		for _, leg := range w.posts(false) {
			if leg.engine == other.name {
				t.Errorf("%s got a request although its weights differ: %s", leg.engine, leg.body)
			}
		}
	})
}
