package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// The rules of production decide with the router's knowledge.
func TestRuled(t *testing.T) {
	q := query(1000)
	for name, want := range map[string]int{"two-state": 0, "block-tracker": 1, "overlap-tiers": 0} {
		what, err := find(name)
		if err != nil {
			t.Fatal(err)
		}
		// Two requests more than the other replica: within 64, above 1.25 x the mean, and 0.6 + 0 against 0 +
		// 0.3.
		p, d := what.(Picker).Pick(q, []Replica{{Matched: 600, Requests: 2}, {}}, []Replica{{Requests: 1}, {}})
		if p != want || d != 1 {
			t.Errorf("%s: %d and %d, want %d and 1", name, p, d, want)
		}
	}
}

// A policy that remembers its own placements knows about a prompt at once, and does not receive its
// eviction.
func TestRemembersWhatWasSent(t *testing.T) {
	r, err := New("two-state", fleet(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f := r.(*Field)
	keys := make([]kv.Key, 100)
	for i := range keys {
		keys[i] = kv.Key(i + 1)
	}
	q := &cluster.Query{Tokens: 1601, Keys: keys}
	first, _, _ := f.Place(q, cluster.Time(0))
	f.Apply(cluster.Prefill, first, &kv.Batch{Events: []kv.Event{{Kind: kv.Cleared}}})
	for slot := 1; slot < 9; slot++ {
		q := &cluster.Query{Slot: slot, Tokens: 1601, Keys: keys}
		if p, _, _ := f.Place(q, cluster.Time(0)); p != first || f.sides[cluster.Prefill][p].Matched != 1600 {
			t.Errorf("request %d goes to %d, the first went to %d", slot, p, first)
		}
	}
}

func TestParams(t *testing.T) {
	all, err := Params("dynamo:credit=1.5:local=0")
	if err != nil || len(all) != 3 || all[0].Name != "credit" || *all[0].Value != 1.5 || *all[1].Value != 0 ||
		*all[2].Value != 0.7 {
		t.Errorf("%v: %+v", err, all)
	}
	if all, err := Params("lmetric"); err != nil || len(all) != 0 {
		t.Errorf("%v: %+v", err, all)
	}
	grid, err := Grid("llm-d")
	if want := []string{
		"llm-d:prefix=1", "llm-d", "llm-d:prefix=4", "llm-d:prefix=10", "llm-d:prefix=20",
	}; err != nil || !slices.Equal(grid, want) {
		t.Errorf("%v: %q", err, grid)
	}
	if grid, err := Grid("random"); err != nil || !slices.Equal(grid, []string{"random"}) {
		t.Errorf("%v: %q", err, grid)
	}
	for name, want := range map[string]string{
		"best":               "round-robin",
		"netkv":              `no policy "netkv": one of [tandem`,
		"dynamo:credits=1":   `no parameter "credits=1": it has credit=1 (of a matched token)`,
		"dynamo:credit":      `no parameter "credit"`,
		"dynamo:credit=high": `"high" is no number`,
		"dynamo:credit=nan":  `"nan" is no number`,
		"random:seed=1":      "it has none",
		"oracle:alpha=1":     "it has none",
	} {
		if _, err := New(name, fleet(), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// Every parameter has a name, a meaning and the value of its authors. If the parameter is tuned, the
// authors' value is tried too. Every value that is tried gives a router.
func TestEveryParam(t *testing.T) {
	for _, name := range Names() {
		all, err := Params(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range all {
			if p.Name == "" || p.Brief == "" ||
				len(p.Try) > 0 && !slices.Contains(p.Try, *p.Value) ||
				i == 0 && len(p.Try) < 3 {
				t.Errorf("%s: %+v, value %g", name, p, *p.Value)
			}
		}
		grid, err := Grid(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range grid {
			if _, err := New(form, fleet(), 1); err != nil {
				t.Error(err)
			}
		}
	}
}

// A parameter also reaches the decision of production.
func TestTunedTandem(t *testing.T) {
	c := racks([]string{"a", "b"}, []string{"b"})
	// See TestOrders: 22 ms of other requests' work wait at p1.
	for settings, want := range map[string]int{"": 1, ":beta=100": 0} {
		r, err := New("tandem-split"+settings, c, 1)
		if err != nil {
			t.Fatal(err)
		}
		x := r.(*Tandem)
		busyPrefill(x)
		if p, _, _ := x.Place(&cluster.Query{Tokens: 2000}, cluster.Time(0)); p != want {
			t.Errorf("tandem-split%s: %d, want %d", settings, p, want)
		}
	}
	o := Options{}
	o.params()
	want := policy.Default()
	got := want
	o.Tuned.apply(&got)
	x := &Tandem{goals: true, tuned: o.Tuned}
	q := &cluster.Query{Class: &cluster.Class{TTFT: time.Second}}
	if got.Weights != want.Weights || got.HeadroomMargin != want.HeadroomMargin ||
		x.FirstBy(q) != (&Tandem{goals: true}).FirstBy(q) {
		t.Errorf("parameters that were not set change the policy: %+v", got)
	}
}

// A policy of production does what its name says, and decides in the prefill pool. p0 has the prompt and
// one request. That is above the limit of 1.25 x the mean of the three replicas, counting the new request
// (1 against 0.8), and below 64.
func TestProductionByRule(t *testing.T) {
	for name, want := range map[string]bool{"two-state": true, "block-tracker": false, "overlap-tiers": true} {
		r, err := New("tandem-"+name, fleet(), 1)
		if err != nil {
			t.Fatal(err)
		}
		x := r.(*Tandem)
		x.asks.LocalOK = false
		tokens := make([]uint32, 1600)
		for i := range tokens {
			tokens[i] = uint32(i)
		}
		chain := kv.NewChain("", 16)
		keys := chain.Append(nil, chain.Root("", ""), tokens)
		event := kv.Event{Kind: kv.Stored, Tokens: tokens, BlockSize: 16, Group: kv.NoGroup}
		for i := range keys {
			event.Hashes = append(event.Hashes, kv.EngineHash(i+1))
		}
		x.Apply(cluster.Prefill, 0, &kv.Batch{Seq: 1, Events: []kv.Event{event}})
		first, _, _ := x.Place(&cluster.Query{Tokens: 1601, Keys: keys}, cluster.Time(0))
		if first != 0 {
			t.Errorf("%s: the first goes to %d, want 0, the replica with the prompt", name, first)
		}
		if x.planner == nil || x.underWay.booked[0].book.Decision.Rules != "prefill by "+name {
			t.Errorf("%s: decided %q", name, x.underWay.booked[0].book.Decision.Rules)
		}
		if p, _, _ := x.Place(&cluster.Query{Slot: 1, Tokens: 1601, Keys: keys},
			cluster.Time(0)); (p == 0) != want {
			t.Errorf("%s: the second goes to %d", name, p)
		}
	}
}
