package planner

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// take is a rule that takes the replica of a name, the first where it has no seat, and notes what it saw.
type take struct {
	name    replica.ID
	targets []scoring.Target
	head    uint64
}

func (r *take) Choose(p scoring.Prompt, targets []scoring.Target, _ *rand.Rand) int {
	r.targets, r.head = append([]scoring.Target(nil), targets...), p.Head
	for i := range targets {
		if targets[i].Name == nameOf(r.name) {
			return i
		}
	}
	return 0
}

func ruleOf(r scoring.Rule) *Rule { return &Rule{Rule: r, Name: "test"} }

// The whole prompt is cached on p1 and everything else is equal: costs choose p1, a rule whom it likes; the
// rest of the plan is chosen given that.
func TestRuleChoosesPrefill(t *testing.T) {
	f := newFleet(3, 2, nil)
	f.store(t, f.prefill, "p1", 1, 1000)
	r := f.request(1, 16_001)
	r.LocalOK = false
	if b := f.plan(t, r); b.Prefill.ID != "p1" || b.Decision.Why == WhyRule || b.Decision.Rules != "" {
		t.Fatalf("by costs: %s, %q, %q", b.Prefill.ID, b.Decision.Why, b.Decision.Rules)
	}
	rule := &take{name: "p3"}
	f.set(Policy{PrefillRule: ruleOf(rule)})
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

// d2 is chosen by rule although d1 holds the prompt; whether it prefills by itself is still a matter of
// costs.
func TestRuleChoosesDecode(t *testing.T) {
	f := newFleet(2, 3, nil)
	f.store(t, f.decode, "d1", 1, 1000)
	f.set(Policy{DecodeRule: ruleOf(&take{name: "d2"})})
	r := f.request(1, 16_001)
	b := f.plan(t, r)
	if b.Decode.ID != "d2" || b.Decision.Rules != "decode by test" || b.Decision.Compared != 3 {
		t.Errorf("%s, %q, %d plans; want d2 in two pairs and alone",
			b.Decode.ID, b.Decision.Rules, b.Decision.Compared)
	}
	both := Policy{PrefillRule: ruleOf(&take{name: "p2"}), DecodeRule: ruleOf(&take{name: "d3"})}
	f.set(both)
	r.LocalOK = false
	b = f.plan(t, r)
	if b.Prefill.ID != "p2" || b.Decode.ID != "d3" || b.Decision.Compared != 1 ||
		b.Decision.Rules != "prefill by test, decode by test" {
		t.Errorf("%s and %s of %d plans, %q", b.Prefill.ID, b.Decode.ID, b.Decision.Compared, b.Decision.Rules)
	}
}

// A rule is not asked for replicas that cannot be used: without a compatible decode replica, of a pair that
// failed, or ill. Where it leaves nobody, costs choose.
func TestRuleTakesOnlyWhoCanServe(t *testing.T) {
	f := newFleet(3, 1, func(r *replica.Replica) {
		if r.ID == "p2" {
			r.Facts.Version = "0.31.0"
		}
	})
	rule := &take{name: "p2"}
	f.set(Policy{PrefillRule: ruleOf(rule), DecodeRule: ruleOf(&take{name: "d9"})})
	r := f.request(1, 4000)
	r.LocalOK = false
	if b := f.plan(t, r); b.Prefill.ID == "p2" || len(rule.targets) != 2 {
		t.Errorf("%s of %d seats: p2 cannot be read by d1", b.Prefill.ID, len(rule.targets))
	}
	r.AvoidPairs = []Pairing{{"p1", "d1"}}
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

// A rule draws anew each time it is asked, so that nothing can be said of what would have been chosen by what
// was learned.
func TestRulesHaveNoShadow(t *testing.T) {
	f := newFleet(2, 2, nil)
	f.set(Policy{Calibration: CalibrateShadow})
	if b := f.plan(t, f.request(1, 4000)); b.Decision.Shadow == nil {
		t.Fatal("costs have no shadow")
	}
	f.set(Policy{Calibration: CalibrateShadow, DecodeRule: ruleOf(&take{name: "d2"})})
	if b := f.plan(t, f.request(1, 4000)); b.Decision.Shadow != nil || b.Decode.ID != "d2" {
		t.Errorf("%s, shadow %+v", b.Decode.ID, b.Decision.Shadow)
	}
}

// Of 100 blocks that p1 has in memory below its own, 60 are in its own too; p2 has 70 in its own. Weighed by
// tier, p2 is as good as p1 with 0.6*40 + 60 = 84.
func TestRuleSeesTiers(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.storeIn(t, "p1", 1, 60, kv.GPU)
	f.storeIn(t, "p1", 1, 100, kv.CPU)
	f.storeIn(t, "p2", 1, 70, kv.GPU)
	rule := &take{}
	tiers := &Rule{Rule: rule, Name: "test", Tiers: true}
	f.set(Policy{PrefillRule: tiers})
	r := f.request(1, 1601)
	r.LocalOK = false
	f.plan(t, r).Release(f.now)
	a, b := rule.targets[0], rule.targets[1]
	if a.Hot != 960 || a.Held != 1600 || b.Hot != 1120 || b.Held != 1120 {
		t.Errorf("seats %+v", rule.targets)
	}
	f.set(Policy{PrefillRule: ruleOf(rule)})
	f.plan(t, r).Release(f.now)
	if rule.targets[0].Hot != 1600 {
		t.Errorf("a rule that does not ask for tiers is told %+v", rule.targets[0])
	}
}

// storeIn tells the prefill pool that id has the first blocks of the prompt named seed in a tier.
func (f *fleet) storeIn(t *testing.T, id replica.ID, seed uint32, blocks int, tier kv.Tier) {
	t.Helper()
	f.seq++
	e := kv.Event{
		Kind: kv.Stored, Tokens: prompt(seed, blocks*blockSize), BlockSize: blockSize, Group: kv.NoGroup,
		Tier: tier,
	}
	for i := range blocks {
		e.Hashes = append(e.Hashes, kv.EngineHash(uint64(seed)<<32|uint64(i)|1<<62))
	}
	if got := f.prefill.Apply(id, &kv.Batch{Seq: f.seq, Events: []kv.Event{e}}); got.Stored != blocks {
		t.Fatalf("storing %d blocks on %s: %+v", blocks, id, got)
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
		if got := headOf(tt.keys, tt.chunk, tt.unit); got != tt.want {
			t.Errorf("unit %d, chunk %g: %d, want %d", tt.unit, tt.chunk, got, tt.want)
		}
	}
}

// A rule costs no memory but the decision's, once it has been asked, and production's rules all choose.
func TestRulesOfProduction(t *testing.T) {
	for name, rule := range map[string]scoring.Rule{
		"two-state": scoring.TwoState{Threshold: 0.3, Apart: 64, Times: 1.5},
		"tracker":   scoring.Tracker{Threshold: 0.3, Bound: 1.25},
		"hash":      scoring.PrefixHash{Bound: 1.25},
		"overlap": scoring.Overlap{
			Overlap: 0.6, Load: 0.3, Hot: 1, Warm: 0.6, Threshold: 0.3, Otherwise: scoring.PrefixHash{Bound: 1.25},
		},
	} {
		f := newFleet(16, 16, nil)
		f.store(t, f.prefill, "p2", 1, 1000)
		r := f.request(1, 16_001)
		r.LocalOK = false
		plain := testing.AllocsPerRun(20, func() { f.plan(t, r).Release(f.now) })
		f.set(Policy{PrefillRule: ruleOf(rule)})
		b := f.plan(t, r)
		if name != "hash" && b.Prefill.ID != "p2" {
			t.Errorf("%s goes to %s, the prompt lies on p2", name, b.Prefill.ID)
		}
		b.Release(f.now)
		f.pass(time.Minute)
		if got := testing.AllocsPerRun(20, func() { f.plan(t, r).Release(f.now) }); got > plain+4 {
			t.Errorf("%s: %v allocations, %v by costs", name, got, plain)
		}
	}
}
