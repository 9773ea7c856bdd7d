package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// plain is an engine that takes 1 ms for a token of a prompt, and for a step of decoding 10 ms, 1 ms a
// sequence and 1 us a token.
var plain = estimate.Speed{A: 1e-3, D0: 10e-3, D1: 1e-3, D2: 1e-6}

// seats gives replicas the plain engine's speed and a large memory.
func seats(rs ...Replica) []Replica {
	for i := range rs {
		rs[i].Speed, rs[i].Capacity = plain, 1_000_000
	}
	return rs
}

// The request has 1,000 tokens.
func TestBaselinesByHand(t *testing.T) {
	for _, tt := range []struct {
		name   string
		picker Picker
		ps, ds []Replica
		p, d   int
	}{
		// 4*2 + 0 = 8 against 0 + 7; 4*1 + 4*1 + 0 = 8 against 9.
		{
			"vllm-dp weighs waiting four times", defaultVLLMDP(), seats(Replica{Waiting: 2}, Replica{Running: 7}),
			seats(Replica{Waiting: 1, Since: 1}, Replica{Running: 9}), 1, 0,
		},
		// 0.6 + 1 - 0.7 = 0.9 s against 1 s; a step of 10 + 3 + 2.1 ms against 10 + 2 + 3.2.
		{
			"mooncake predicts",
			conductor{},
			seats(Replica{Work: 6e8, Matched: 700}, Replica{}),
			seats(Replica{Requests: 2, Prompts: 1100}, Replica{Requests: 1, Prompts: 2200}), 0, 0,
		},
		{
			"mooncake counts the queue",
			conductor{},
			seats(Replica{Work: 8e8, Matched: 700}, Replica{}),
			seats(Replica{Requests: 2, Prompts: 1300}, Replica{Requests: 1, Prompts: 2200}), 1, 1,
		},
		// Own prefill: 0.001*1000^1.5 + 5 = 36.6 ms; behind 900 cached ones 6 ms, and 5.5 for those. Four tokens a
		// step: 14 ms/4*(1+1/4) = 4.4; one: 11*2 = 22.
		{
			"aibrix-conductor prices length, and likes company", &aibrixConductor{prefill: 0.001, mean: 20, decode: 1},
			seats(Replica{Matched: 900, Requests: 1}, Replica{}), seats(Replica{Requests: 4}, Replica{Requests: 1}), 0,
			0,
		},
		{
			"aibrix-conductor prices requests, and dislikes idleness",
			&aibrixConductor{prefill: 0.001, mean: 30, decode: 1},
			seats(Replica{Matched: 900, Requests: 1}, Replica{}), seats(Replica{Requests: 1}, Replica{}), 1, 0,
		},
		// 14/4*1.25*1.5 = 6.6 against 13/3*(1+1/3) = 5.8.
		{
			"aibrix-conductor avoids the full", &aibrixConductor{prefill: 0.001, mean: 20, decode: 1},
			seats(Replica{}, Replica{Requests: 1}), seats(Replica{Requests: 4, Usage: 0.95}, Replica{Requests: 3}), 0,
			1,
		},
		{
			"aibrix-conductor leaves decode to aibrix", &aibrixConductor{prefill: 0.001, mean: 20},
			seats(Replica{}, Replica{Requests: 1}), seats(Replica{Requests: 4}, Replica{}), 0, 1,
		},
		// Both have room within 5 s: the later one; and a step of 10 + 80 + 1 ms against 10 + 2 + 1.
		{
			"polyserve packs", defaultPolyServe(), seats(Replica{Work: 3e9}, Replica{Work: 1e9}),
			seats(Replica{Requests: 1}, Replica{Requests: 79}), 0, 1,
		},
		{
			"polyserve keeps the SLO", defaultPolyServe(), seats(Replica{Work: 41e8}, Replica{Work: 1e9}),
			seats(Replica{Requests: 1}, Replica{Requests: 95}), 1, 0,
		},
		{
			"retry takes a free slot", defaultRetry(), seats(Replica{Requests: 1}, Replica{}),
			seats(Replica{Requests: 1}, Replica{}), 1, 1,
		},
		{
			"retry holds", defaultRetry(), seats(Replica{Requests: 1}, Replica{Requests: 1}), seats(Replica{}), hold,
			0,
		},
		{
			"push follows among the free", defaultPush(), seats(Replica{Tokens: 8000, Matched: 16}, Replica{}),
			seats(Replica{Requests: 1}, Replica{}), 0, 1,
		},
		{
			"push leaves the busy", defaultPush(), seats(Replica{Tokens: 8192, Matched: 900}, Replica{Tokens: 8191}),
			seats(Replica{}, Replica{Requests: 1}), 1, 0,
		},
		{
			"push holds", defaultPush(), seats(Replica{Tokens: 8192}, Replica{Tokens: 9000}), seats(Replica{}), hold,
			0,
		},
	} {
		if p, d := tt.picker.Pick(query(1000), tt.ps, tt.ds); p != tt.p || d != tt.d {
			t.Errorf("%s: picks %d and %d, want %d and %d", tt.name, p, d, tt.p, tt.d)
		}
	}
}

// Each token of what is not there takes 10 us to d0 and 30 us to d1.
func TestNetKVByHand(t *testing.T) {
	q := query(1000)
	q.PerToken = func(_, d int) float64 { return []float64{10e-6, 30e-6}[d] }
	for _, tt := range []struct {
		ds   []Replica
		want int
	}{
		{seats(Replica{}, Replica{}), 0},
		// 10 ms + 10 + 10 + 1 ms of a step against 3 ms + 10 + 1 + 1.
		{seats(Replica{Requests: 9}, Replica{Matched: 900}), 1},
		// 10 + 10 + 2 + 1 against 30 + 10 + 1 + 1.
		{seats(Replica{Requests: 1}, Replica{}), 0},
		// No room on d0.
		{[]Replica{{Speed: plain, Capacity: 900}, {Speed: plain, Capacity: 9000}}, 1},
	} {
		if _, d := defaultNetKV().Pick(q, seats(Replica{}), tt.ds); d != tt.want {
			t.Errorf("%+v: %d, want %d", tt.ds, d, tt.want)
		}
	}
}

// Three prompts without matches go to the least loaded one after the other; a match above half is followed,
// until its replica has 1.5 times as much as the least.
func TestPrebleByHand(t *testing.T) {
	x := defaultPreble()
	q := query(1000)
	q.Now = time.Unix(1000, 0)
	ds := seats(Replica{})
	pick := func(matched ...int) int {
		rs := seats(make([]Replica, len(matched))...)
		for i := range rs {
			rs[i].Matched = matched[i]
		}
		p, _ := x.Pick(q, rs, ds)
		return p
	}
	if p := pick(0, 480); p != 1 { // 1 s against 0.52 s: both idle, it explores to where less is left
		t.Errorf("explores to %d", p)
	}
	if p := pick(0, 480); p != 0 { // 1 s against 0.52 + 0.52
		t.Errorf("explores to %d", p)
	}
	// Loads are 1 and 0.52 now: 1.9 times.
	if p := pick(501, 0); p != 1 {
		t.Errorf("follows to %d, which has 1.9 times the load", p)
	}
	// 1 and 1.52.
	if p := pick(0, 501); p != 0 {
		t.Errorf("follows to %d, which has 1.52 times the load", p)
	}
	// 2 and 1.52.
	if p := pick(501, 0); p != 0 {
		t.Errorf("goes to %d: 1.3 times is no reason", p)
	}
	q.Now = q.Now.Add(181 * time.Second)
	if pick(501, 0); x.load[0].Round(time.Millisecond) != 499*time.Millisecond || x.load[1] != 0 ||
		len(x.sent) != 1 {
		t.Errorf("loads after three minutes: %v", x.load)
	}
}

// Hits of 0 and 400 tokens, requests of 3 and 1, work of 1,500 and 600 tokens: 0 against 1; with the middle
// one 0.7/2 + 0.15/2 + 0.15*(1500-1050)/900.
func TestBailianDraws(t *testing.T) {
	ps := []Replica{
		{Requests: 3, Tokens: 500}, {Requests: 2, Matched: 200, Tokens: 250}, {Requests: 1, Matched: 400},
	}
	q := query(1000)
	counts := make([]float64, 3)
	for range 30_000 {
		p, _ := defaultBailian().Pick(q, ps, make([]Replica, 1))
		counts[p]++
	}
	if got := counts[1] / 30_000; counts[0] != 0 || math.Abs(got-0.5/1.5) > 0.01 {
		t.Errorf("drawn %v, want none, a third and two thirds", counts)
	}
	even := make([]float64, 3)
	for range 3000 {
		p, _ := defaultBailian().Pick(q, make([]Replica, 3), make([]Replica, 1))
		even[p]++
	}
	if slices.Min(even) < 850 {
		t.Errorf("equal replicas are drawn %v", even)
	}
}

// The rules of production are asked with what the router knows.
func TestRuled(t *testing.T) {
	q := query(1000)
	for name, want := range map[string]int{"two-state": 0, "block-tracker": 1, "overlap-tiers": 0} {
		what, err := find(name)
		if err != nil {
			t.Fatal(err)
		}
		// Two requests more than the other: within 64, beyond 1.25 x mean, and 0.6 + 0 against 0 + 0.3.
		p, d := what.(Picker).Pick(q, []Replica{{Matched: 600, Requests: 2}, {}}, []Replica{{Requests: 1}, {}})
		if p != want || d != 1 {
			t.Errorf("%s: %d and %d, want %d and 1", name, p, d, want)
		}
	}
}

// A policy that remembers what it sent knows of a prompt at once, and does not hear of its eviction.
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
	if n := f.sides[cluster.Prefill][first].Since; n != 9 {
		t.Errorf("%d sent since the last report", n)
	}
	// An answer's, which does not say who runs.
	f.Observe(cluster.Prefill, first, replica.Load{Running: -1, Waiting: 2}, cluster.Time(0))
	f.Observe(cluster.Prefill, first, replica.Load{Running: 9}, cluster.Time(0))
	if n := f.sides[cluster.Prefill][first].Since; n != 0 {
		t.Errorf("%d sent since the last report", n)
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

// Every parameter has a name, a meaning and a value that its authors gave; where it is tuned that value is
// tried too, and every other one makes a router.
func TestEveryParam(t *testing.T) {
	for _, name := range Names() {
		all, err := Params(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range all {
			if p.Name == "" || p.Brief == "" ||
				len(p.Try) > 0 && !slices.Contains(p.Try, *p.Value) && !strings.HasSuffix(name, "1.5") ||
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

// A parameter that is set reaches the decision of production, too.
func TestTunedTandem(t *testing.T) {
	c := racks([]string{"a", "b"}, []string{"b"})
	// See TestOrders: 22 ms of others' work before p1.
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
	if got.Weights != want.Weights || got.HeadroomMargin != want.HeadroomMargin ||
		got.FirstToken != want.FirstToken {
		t.Errorf("parameters that nobody set change the policy: %+v", got)
	}
}

// Late binding leaves nobody behind: all are served, none waits for ever at the router while a replica is
// free.
func TestLateBindingServesAll(t *testing.T) {
	for _, name := range []string{"reject-and-retry", "selective-push"} {
		r, err := New(name, fleet(), 1)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		text.WriteString(nameless)
		for i := range 60 {
			fmt.Fprintf(&text, `{"t":%g,"in":9000,"out":2}`+"\n", 0.001*float64(i))
		}
		source, err := trace.Open(strings.NewReader(text.String()), "sample", trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := cluster.New(fleet(), r, source, 1)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waited, busy := 0, time.Duration(0)
		for _, x := range res.Records {
			if x.Refused {
				t.Fatalf("%s: %+v", name, x)
			}
			if x.Waited > 0 {
				waited++
			}
		}
		for _, b := range res.Busy[cluster.Prefill] {
			busy += b
		}
		if idle := 3*res.End - busy; waited < 40 || idle > res.End/2 {
			t.Errorf("%s: %d of 60 waited, prefill replicas idle for %v of 3 x %v", name, waited, idle, res.End)
		}
	}
}

// A policy of production is what its name says, and decides in the prefill pool: p0 has the prompt and one
// request, which is more than 1.25 x the mean of the three with the new one allows (1 of 0.8), and less than
// 64.
func TestProductionByRule(t *testing.T) {
	for name, want := range map[string]bool{"two-state": true, "block-tracker": false, "overlap-tiers": true} {
		r, err := New("tandem-"+name, fleet(), 1)
		if err != nil {
			t.Fatal(err)
		}
		x := r.(*Tandem)
		x.local = false
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
			t.Errorf("%s: the first goes to %d, the prompt lies on 0", name, first)
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
