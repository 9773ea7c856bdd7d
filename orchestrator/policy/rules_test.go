package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// The rules with their authors' numbers.
var (
	twoState   = Rule(config.PolicyTwoState)
	tracker    = Rule(config.PolicyBlockTracker)
	prefixHash = Rule(config.PolicyPrefixHash)
	overlap    = Rule(config.PolicyOverlapTiers)
)

// The configured rule arrives under its name; costs are no rule.
func TestRuleOfTheConfiguration(t *testing.T) {
	c := config.Default()
	if p := Of(c); p.Rule != nil {
		t.Fatal("costs are a rule")
	}
	for _, name := range []string{
		config.PolicyTwoState, config.PolicyBlockTracker, config.PolicyPrefixHash, config.PolicyOverlapTiers,
	} {
		c.Experimental.Policy = name
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := Of(c).Rule; r == nil || r.Name != name || r.Chooser != Rule(name).Chooser {
			t.Errorf("%s is %+v", name, r)
		}
	}
}

func TestRulesByHand(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	prompt := planner.Prompt{Tokens: 1000}
	for _, tt := range []struct {
		name    string
		rule    planner.Chooser
		targets []planner.Target
		want    int
	}{
		{"two-state follows more than 30 %", twoState, []planner.Target{{Held: 301, Load: 64}, {}}, 0},
		{"two-state does not follow 30 %", twoState, []planner.Target{{Held: 300, Load: 1}, {}}, 1},
		{"two-state takes the longest", twoState, []planner.Target{{Held: 400}, {Held: 416, Load: 9}, {}}, 1},
		{
			"two-state takes the less loaded of two", twoState,
			[]planner.Target{{Held: 400, Load: 2}, {Held: 400, Load: 1}},
			1,
		},
		{"two-state balances beyond 64", twoState, []planner.Target{{Held: 900, Load: 65}, {}, {Load: 1}}, 1},
		{
			"two-state needs both: 165 is no 1.5 x 110", twoState,
			[]planner.Target{{Held: 900, Load: 165}, {Load: 110}, {Load: 100 + 10}},
			0,
		},
		{
			"two-state: 176 is more than 1.5 x 110, and 66 apart", twoState,
			[]planner.Target{{Held: 900, Load: 176}, {Load: 110}, {Load: 120}},
			1,
		},
		// (2 + 0 + 1) * 1.25 / 2 = 1.9: two at most.
		{"tracker bounds", tracker, []planner.Target{{Held: 900, Load: 2}, {Load: 0}}, 1},
		{"tracker follows below the bound", tracker, []planner.Target{{Held: 900, Load: 1}, {Load: 0}}, 0},
		{"tracker follows an idle one", tracker, []planner.Target{{}, {Held: 301}, {}, {}}, 1},
		{"tracker wants 30 %", tracker, []planner.Target{{Held: 300, Load: 1}, {}}, 1},
		// 0.6*1 + 0.3*(1-1) = 0.6 against 0.6*0.4 + 0.3 = 0.54; 0.6*1 against 0.6*0.6 + 0.3 = 0.66.
		{"overlap outweighs load", overlap, []planner.Target{{Held: 500, Load: 4}, {Held: 200}}, 0},
		{"load outweighs overlap", overlap, []planner.Target{{Held: 500, Load: 4}, {Held: 300}}, 1},
		{
			"overlap below the threshold, without a head: least load", overlap,
			[]planner.Target{{Held: 299, Load: 1}, {}},
			1,
		},
		{"a hash without a head: least load", prefixHash, []planner.Target{{Load: 1}, {}}, 1},
	} {
		if got := tt.rule.Choose(prompt, tt.targets, rnd); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A head keeps its replica when others come and go, and spreads with all others evenly; a full replica is
// passed over for the next in the head's order.
func TestPrefixHash(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := prefixHash
	targets := []planner.Target{{Name: 10}, {Name: 20}, {Name: 30}, {Name: 40}}
	counts := map[uint64]int{}
	for head := uint64(1); head <= 4000; head++ {
		p := planner.Prompt{Tokens: 1000, Head: head}
		first := targets[r.Choose(p, targets, rnd)].Name
		counts[first]++
		fewer := []planner.Target{{Name: 40}, {Name: 20}, {Name: 10}} // 30 left, and the order changed
		if again := fewer[r.Choose(p, fewer, rnd)].Name; first != 30 && again != first {
			t.Fatalf("head %d moves from %d to %d though it need not", head, first, again)
		}
		busy := append([]planner.Target(nil), targets...)
		for i := range busy {
			if busy[i].Name == first {
				busy[i].Load = 1 // (1 + 1) * 1.25 / 4 = 0.6: one at most
			}
		}
		if next := busy[r.Choose(p, busy, rnd)].Name; next == first {
			t.Fatalf("head %d stays with a full replica", head)
		}
	}
	for name, n := range counts {
		if n < 900 || n > 1100 {
			t.Errorf("replica %d gets %d heads of 4000", name, n)
		}
	}
}

// Equal replicas are drawn by chance, each as often.
func TestRulesDrawTies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	targets := make([]planner.Target, 5)
	for i, r := range []planner.Chooser{twoState, tracker, overlap, prefixHash} {
		counts := make([]int, len(targets))
		for range 5000 {
			counts[r.Choose(planner.Prompt{Tokens: 100}, targets, rnd)]++
		}
		for k, n := range counts {
			if n < 850 || n > 1150 {
				t.Errorf("rule %d takes replica %d %d times of 5000", i, k, n)
			}
		}
	}
}
