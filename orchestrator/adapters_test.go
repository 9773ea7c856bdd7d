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

// orAlone lets prompts be split where they can be.
func orAlone(c *config.Config) { c.Local, c.Experimental.Scoring.Speed.Local = config.LocalAuto, 1 }

// swap has an adapter loaded from another path under its name, and lets the router hear of it.
func (w *world) swap(path string, on ...*simulated) {
	for _, e := range on {
		fault(enginesim.Fault{Kind: "swap_adapter", Body: "ad", Path: path})(w, e)
	}
	time.Sleep(3 * fleet.ModelsInterval)
}

// askSome asks for several prompts of an adapter, wants each to be exact, and counts which were split.
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

// While an adapter is exchanged under its name, a pool before the other, nothing is handed over between the
// weights: the decode replicas compute such prompts alone. Base-model requests are split as before.
func TestAdapterIsExchanged(t *testing.T) {
	in(t, adapterFleet(setup{config: orAlone}), func(w *world) {
		if n := w.askSome(0); n != 4 {
			t.Fatalf("%d of 4 were split where all have the same weights", n)
		}
		w.swap("/adapters/ad-2", w.p...)
		if n := w.askSome(0); n != 0 {
			t.Errorf("%d of 4 were split where the weights differ", n)
		}
		for _, e := range append(w.p, w.d...) {
			if !slices.ContainsFunc(w.o.fleet.Endpoint(replica.ID(e.addr)).States(replica.ID(e.addr)), differs) {
				t.Errorf("%s is not shown to have other weights", e.name)
			}
		}
		if p := completion(false); w.ask(p).status != 200 || w.o.ring.Newest(1)[0].Mode != "split" {
			t.Error("a request for the base model was not split")
		}
		w.swap("/adapters/ad-2", append(w.d, w.whole)...)
		if n := w.askSome(0); n != 4 {
			t.Errorf("%d of 4 were split where all have the new weights", n)
		}
	})
}

// Where one replica of each pool has the new weights, requests are handed over between those of a kind.
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

// Where nothing may be computed by a decode replica alone a request is refused rather than answered wrongly.
func TestAdapterDiffersAndNothingIsLocal(t *testing.T) {
	in(t, adapterFleet(setup{}), func(w *world) {
		w.swap("/adapters/ad-2", w.d...)
		p := adapted(completion(false), "ad")
		w.failed(p, w.ask(p), 503)
	})
}

// The same adapter may lie in another folder on every machine: what is behind the folders is compared.
func TestAdapterFolders(t *testing.T) {
	s := setup{config: func(c *config.Config) {
		orAlone(c)
		c.Pools.Prefill.AdapterFolders = []string{"/fast", "/fast/adapters"}
		c.Pools.Decode.AdapterFolders = []string{"/adapters/"}
	}}
	in(t, adapterFleet(s), func(w *world) {
		w.swap("/fast/adapters/ad", w.p...)
		if n := w.askAny(4); n != 4 {
			t.Errorf("%d of 4 were split where nothing but the folder differs", n)
		}
		w.swap("/fast/adapters/ad-2", w.p...)
		if n := w.askAny(4); n != 0 {
			t.Errorf("%d of 4 were split where the weights differ", n)
		}
	})
}

// askAny asks for so many prompts of an adapter and counts which were split. To a simulated engine
// another path is other weights, so that nothing is said of the texts.
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

// An adapter that is exchanged is another one to the answer cache. What was asked meanwhile, before the
// router heard of it, is given out no more when the former weights are back under their path.
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
		w.exact(late, w.fromCache(late, "MISS")) // the router has not heard of it
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

// An answer that was begun with one adapter, and ended when the router knew of another, is nobody's.
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
			t.Errorf("%d answers of no known engine, want this one", n)
		}
	})
}
