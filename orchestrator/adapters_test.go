package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// adapterFleet is a fleet whose engines all have one adapter.
func adapterFleet(s setup) setup {
	s.engine = func(_ string, o *enginesim.Options) { o.Adapters = []string{"ad"} }
	return s
}

// orAlone lets the router split prompts, or send them to one decode replica alone.
func orAlone(c *config.Config) { c.Local, c.Experimental.Scoring.Speed.Local = config.LocalAuto, 1 }

// swap replaces the adapter under its name by the one at another path, and waits until the router has seen
// it.
func (w *world) swap(path string, on ...*simulated) {
	for _, e := range on {
		fault(enginesim.Fault{Kind: "swap_adapter", Body: "ad", Path: path})(w, e)
	}
	time.Sleep(3 * fleet.ModelsInterval)
}

// askSome sends four prompts to an adapter, checks that each answer is exact, and counts the split ones.
func (w *world) askSome(from int) (split int) {
	for i := range 4 {
		p := adapted(completion(i%2 == 0), "ad")
		p.body = strings.Replace(p.body, "word0", fmt.Sprint("word", from+i), 1)
		w.exact(p, w.ask(p))
		if w.o.ring.Newest(1)[0].Mode == "split" {
			split++
		}
	}
	return split
}

func differs(s fleet.State) bool { return s.State == fleet.StateAdapter }

// An adapter is replaced under its name, first in one pool, then in the other. In between, no KV blocks
// pass between engines with different weights: decode replicas compute such prompts alone. Requests to the
// base model are split as before.
func TestAdapterIsExchanged(t *testing.T) {
	in(t, adapterFleet(setup{config: orAlone}), func(w *world) {
		if n := w.askSome(0); n != 4 {
			t.Fatalf("%d of 4 requests were split, want 4: all engines have the same weights", n)
		}
		w.swap("/adapters/ad-2", w.p...)
		if n := w.askSome(0); n != 0 {
			t.Errorf("%d of 4 requests were split, want 0: the weights differ", n)
		}
		for _, e := range append(w.p, w.d...) {
			if !slices.ContainsFunc(w.o.fleet.Endpoint(replica.ID(e.addr)).States(replica.ID(e.addr)), differs) {
				t.Errorf("%s does not show that its weights differ", e.name)
			}
		}
		if p := completion(false); w.ask(p).status != 200 || w.o.ring.Newest(1)[0].Mode != "split" {
			t.Error("a request for the base model was not split")
		}
		w.swap("/adapters/ad-2", append(w.d, w.whole)...)
		if n := w.askSome(0); n != 4 {
			t.Errorf("%d of 4 requests were split, want 4: all engines have the new weights", n)
		}
	})
}

// If one replica of each pool has the new weights, only replicas with equal weights form pairs.
func TestAdapterPairsByWeights(t *testing.T) {
	in(t, adapterFleet(setup{config: orAlone}), func(w *world) {
		w.swap("/adapters/ad-2", w.p[0], w.d[0])
		for i := range 8 {
			p := adapted(completion(true), "ad")
			p.body = strings.Replace(p.body, "word0", fmt.Sprint("word", i), 1)
			if got := w.ask(p); got.status != 200 {
				t.Fatalf("status %d: %s", got.status, got.raw)
			}
			r := w.o.ring.Newest(1)[0]
			if r.Mode != "split" || (r.Prefill == w.p[0].addr) != (r.Decode == w.d[0].addr) {
				t.Errorf("%s from %s to %s", r.Mode, r.Prefill, r.Decode)
			}
		}
	})
}

// If no decode replica may compute a prompt alone, the router refuses the request instead of mixing
// weights.
func TestAdapterDiffersAndNothingIsLocal(t *testing.T) {
	in(t, adapterFleet(setup{}), func(w *world) {
		w.swap("/adapters/ad-2", w.d...)
		p := adapted(completion(false), "ad")
		w.failed(p, w.ask(p), 503)
	})
}

// The same adapter may lie in different folders on different machines. Only the path below the folder
// counts.
func TestAdapterFolders(t *testing.T) {
	s := setup{config: func(c *config.Config) {
		orAlone(c)
		c.Pools.Prefill.AdapterFolders = []string{"/fast", "/fast/adapters"}
		c.Pools.Decode.AdapterFolders = []string{"/adapters/"}
	}}
	in(t, adapterFleet(s), func(w *world) {
		w.swap("/fast/adapters/ad", w.p...)
		if n := w.askAny(4); n != 4 {
			t.Errorf("%d of 4 requests were split, want 4: only the folder differs", n)
		}
		w.swap("/fast/adapters/ad-2", w.p...)
		if n := w.askAny(4); n != 0 {
			t.Errorf("%d of 4 requests were split, want 0: the weights differ", n)
		}
	})
}

// askAny sends n prompts to an adapter and counts the split ones. It does not compare the texts: for a
// simulated engine another path means other weights.
func (w *world) askAny(n int) (split int) {
	for i := range n {
		p := adapted(completion(false), "ad")
		p.body = strings.Replace(p.body, "word0", fmt.Sprint("word", i), 1)
		if got := w.ask(p); got.status != 200 {
			w.t.Errorf("status %d: %s", got.status, got.raw)
		}
		if w.o.ring.Newest(1)[0].Mode == "split" {
			split++
		}
	}
	return split
}

// The answer cache treats a replaced adapter as a different model. Answers computed before the router
// noticed the replacement are not served later, even if the former weights return under their path.
func TestAnswersOfAnExchangedAdapterAreNotGivenOut(t *testing.T) {
	const first, second = "/adapters/ad", "/adapters/ad-2"
	s := &shelf{}
	shared := sharing(s)
	shared.engine = func(_ string, o *enginesim.Options) { o.Adapters = []string{"ad=" + first} }
	in(t, shared, func(w *world) {
		all := append(slices.Clone(w.p), append(w.d, w.whole)...)
		early, late := adapted(completion(false), "ad"), adapted(completion(false), "ad")
		late.body = strings.Replace(late.body, "word0", "word1", 1)
		w.exact(early, w.fromCache(early, "MISS"))
		w.exact(early, w.fromCache(early, "HIT"))
		for _, e := range all {
			fault(enginesim.Fault{Kind: "swap_adapter", Body: "ad", Path: second})(w, e)
		}
		w.exact(late, w.fromCache(late, "MISS")) // the router has not noticed the new adapter yet
		time.Sleep(3 * fleet.ModelsInterval)
		for _, p := range []prompt{early, late} {
			w.exact(p, w.fromCache(p, "MISS"))
			w.exact(p, w.fromCache(p, "HIT"))
		}
		w.swap(first, all...)
		for _, p := range []prompt{early, late} {
			w.exact(p, w.fromCache(p, "MISS"))
			w.forget()
			w.exact(p, w.fromCache(p, "HIT"))
		}
	})
}

// The cache does not keep an answer that began with one adapter and ended after the router knew another
// one.
func TestAnswersOfAnAdapterThatIsExchangedMeanwhileAreNotKept(t *testing.T) {
	in(t, adapterFleet(remembering()), func(w *world) {
		p := adapted(completion(true), "ad")
		p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":1200`, 1)
		w.ask(p, func(event int) {
			if event == 3 {
				for _, e := range append(slices.Clone(w.p), w.d...) {
					fault(enginesim.Fault{Kind: "swap_adapter", Body: "ad", Path: "/adapters/ad-2"})(w, e)
				}
			}
		})
		if n := w.count("tandem_answer_cache_unkept_total", "unknown_engine"); n != 1 {
			t.Errorf("%d answers were not kept because their engine is unknown, want 1", n)
		}
	})
}
