package planner

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// take is a rule that takes the replica of a name, the first where it has no seat, and notes what it saw.
type take struct {
	name    replica.ID
	targets []Target
	head    uint64
}

func (r *take) Choose(p Prompt, targets []Target, _ *rand.Rand) int {
	r.targets, r.head = append([]Target(nil), targets...), p.Head
	for i := range targets {
		if targets[i].Name == nameOf(r.name) {
			return i
		}
	}
	return 0
}

func ruleOf(r Chooser) *Rule { return &Rule{Chooser: r, Name: "test"} }

// The whole prompt is cached on p1 and everything else is equal: costs choose p1, a rule its own choice; the
// rest of the plan follows that choice.
func TestRuleChoosesPrefill(t *testing.T) {
	f := newFleet(3, 2, nil)
	f.store(t, f.prefill, "p1", 1, 1000)
	r := f.request(1, 16_001)
	r.LocalOK = false
	if b := f.plan(t, r); b.Prefill.ID != "p1" || b.Decision.Why == WhyRule || b.Decision.Rules != "" {
		t.Fatalf("by costs: %s, %q, %q", b.Prefill.ID, b.Decision.Why, b.Decision.Rules)
	}
	rule := &take{name: "p3"}
	f.set(Policy{Rule: ruleOf(rule)})
	b := f.plan(t, r)
	d := b.Decision
	if b.Prefill.ID != "p3" || d.Why != WhyRule || d.Rules != "prefill by test" ||
		!strings.HasSuffix(d.Reason, "; prefill by test") {
		t.Errorf("by the rule: %s, %+v", b.Prefill.ID, d)
	}
	if d.Compared != 2 || d.Available != 16_000 {
		t.Errorf("%d plans compared, want those of p3; %d tokens available, want what p1 has",
			d.Compared, d.Available)
	}
	if len(rule.targets) != 3 || rule.targets[0].Held != 16_000 || rule.targets[0].Load != 1 ||
		rule.targets[1].Load != 0 {
		t.Errorf("the rule saw %+v", rule.targets)
	}
	if want := uint64(r.PrefillKeys[15]); rule.head != want {
		t.Errorf("the head is %x, want the key of the 16th block: 256 tokens", rule.head)
	}
	b.Release(f.now)

	f.set(Policy{})                        // the table of pairs must be as it was
	f.prefill.Expire(f.now.Add(time.Hour)) // what p3 was going to compute
	if b := f.plan(t, r); b.Prefill.ID != "p1" || b.Decision.Compared != 6 || b.Decision.Why == WhyRule {
		t.Errorf("by costs again: %s of %d plans", b.Prefill.ID, b.Decision.Compared)
	}
}

// A rule does not choose an unusable replica: an unhealthy one, one without a compatible decode replica, or
// one of a pair that failed. If no replica is left for the rule, costs choose.
func TestRuleTakesOnlyWhoCanServe(t *testing.T) {
	f := newFleet(3, 1, func(r *replica.Replica) {
		if r.ID == "p2" {
			r.Facts.Version = "0.31.0"
		}
	})
	rule := &take{name: "p2"}
	f.set(Policy{Rule: ruleOf(rule)})
	r := f.request(1, 4000)
	r.LocalOK = false
	if b := f.plan(t, r); b.Prefill.ID == "p2" || len(rule.targets) != 2 {
		t.Errorf("%s of %d seats: p2 cannot be read by d1", b.Prefill.ID, len(rule.targets))
	}
	r.AvoidPairs = []Pairing{{Prefill: "p1", Decode: "d1"}}
	if b := f.plan(t, r); b.Prefill.ID != "p3" || len(rule.targets) != 1 {
		t.Errorf("%s of %d seats: the pair of p1 failed this request", b.Prefill.ID, len(rule.targets))
	}
	r.AvoidPrefill = []replica.ID{"p3"}
	if _, err := f.pl.Plan(r, f.now); err == nil {
		t.Error("a plan without any pair")
	}
	r.LocalOK = true
	if b := f.plan(t, r); b.Mode != Local || b.Decode.ID != "d1" {
		t.Errorf("%v on %s: nobody prefills but d1", b.Mode, b.Decode.ID)
	}
	d, err := f.pl.Explain(f.request(1, 4000), f.now)
	if err != nil || d.Why != WhyRule {
		t.Errorf("explained as %+v, %v", d, err)
	}
}

// By text a head is as many chunks as make 256 tokens; a prompt without keys has none.
func TestHead(t *testing.T) {
	keys := []kv.Key{1, 2, 3, 4, 5, 6, 7, 8}
	for _, tt := range []struct {
		keys  []kv.Key
		chunk float64
		unit  int
		want  uint64
	}{
		{keys, 0, 64, 4}, {keys, 0, 16, 8}, {keys, 0, 512, 1}, {keys, 100, 16, 2}, {nil, 0, 16, 0},
	} {
		q := &question{Request: &Request{PrefillKeys: tt.keys, PrefillBlock: tt.unit, Chunk: tt.chunk}}
		if got := headOf(q); got != tt.want {
			t.Errorf("unit %d, chunk %g: %d, want %d", tt.unit, tt.chunk, got, tt.want)
		}
	}
}

// A rule costs no memory but the decision's, once it has been asked.
func TestRuleAllocatesNothing(t *testing.T) {
	f := newFleet(16, 16, nil)
	r := f.request(1, 16_001)
	r.LocalOK = false
	plain := testing.AllocsPerRun(20, func() { f.plan(t, r).Release(f.now) })
	f.set(Policy{Rule: ruleOf(first{})})
	f.plan(t, r).Release(f.now)
	f.pass(time.Minute)
	if got := testing.AllocsPerRun(20, func() { f.plan(t, r).Release(f.now) }); got > plain+4 {
		t.Errorf("%v allocations, %v by costs", got, plain)
	}
}

// first takes the first target.
type first struct{}

func (first) Choose(Prompt, []Target, *rand.Rand) int { return 0 }
