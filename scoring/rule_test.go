package scoring

import (
	"math/rand/v2"
	"testing"
)

// The rules with their authors' numbers.
var (
	twoState   = TwoState{Threshold: 0.3, Apart: 64, Times: 1.5}
	tracker    = Tracker{Threshold: 0.3, Bound: 1.25}
	prefixHash = PrefixHash{Bound: 1.25}
	overlap    = Overlap{Overlap: 0.6, Load: 0.3, Hot: 1, Warm: 0.6, Threshold: 0.3, Otherwise: prefixHash}
)

func TestRulesByHand(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	prompt := Prompt{Tokens: 1000}
	for _, tt := range []struct {
		name  string
		rule  Rule
		seats []Target
		want  int
	}{
		{"two-state follows more than 30 %", twoState, []Target{{Held: 301, Load: 64}, {}}, 0},
		{"two-state does not follow 30 %", twoState, []Target{{Held: 300, Load: 1}, {}}, 1},
		{"two-state takes the longest", twoState, []Target{{Held: 400}, {Held: 416, Load: 9}, {}}, 1},
		{
			"two-state takes the less loaded of two", twoState,
			[]Target{{Held: 400, Load: 2}, {Held: 400, Load: 1}},
			1,
		},
		{"two-state balances beyond 64", twoState, []Target{{Held: 900, Load: 65}, {}, {Load: 1}}, 1},
		{
			"two-state needs both: 165 is no 1.5 x 110", twoState,
			[]Target{{Held: 900, Load: 165}, {Load: 110}, {Load: 100 + 10}},
			0,
		},
		{
			"two-state: 176 is more than 1.5 x 110, and 66 apart", twoState,
			[]Target{{Held: 900, Load: 176}, {Load: 110}, {Load: 120}},
			1,
		},
		// (2 + 0 + 1) * 1.25 / 2 = 1.9: two at most.
		{"tracker bounds", tracker, []Target{{Held: 900, Load: 2}, {Load: 0}}, 1},
		{"tracker follows below the bound", tracker, []Target{{Held: 900, Load: 1}, {Load: 0}}, 0},
		{"tracker follows an idle one", tracker, []Target{{}, {Held: 301}, {}, {}}, 1},
		{"tracker wants 30 %", tracker, []Target{{Held: 300, Load: 1}, {}}, 1},
		// 0.6*1 + 0.3*(1-1) = 0.6 against 0.6*0.4 + 0.3 = 0.54; 0.6*1 against 0.6*0.6 + 0.3 = 0.66.
		{"overlap outweighs load", overlap, []Target{{Hot: 500, Held: 500, Load: 4}, {Hot: 200, Held: 200}}, 0},
		{"load outweighs overlap", overlap, []Target{{Hot: 500, Held: 500, Load: 4}, {Hot: 300, Held: 300}}, 1},
		// 0.6*0.6 = 0.36 against 0.6*0.7 = 0.42.
		{"a warm tier counts less", overlap, []Target{{Held: 1000}, {Hot: 700, Held: 700}}, 1},
		// 0.6*(0.5 + 0.6*0.5) = 0.48 against 0.42.
		{"half of it hot counts more", overlap, []Target{{Hot: 500, Held: 1000}, {Hot: 700, Held: 700}}, 0},
		{
			"overlap below the threshold, without a head: least load", overlap,
			[]Target{{Hot: 299, Held: 299, Load: 1}, {}},
			1,
		},
		{"a hash without a head: least load", prefixHash, []Target{{Load: 1}, {}}, 1},
	} {
		if got := tt.rule.Choose(prompt, tt.seats, rnd); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A head keeps its replica when others come and go, and spreads with all others evenly; a full replica is
// passed over for the next in the head's order.
func TestPrefixHash(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := prefixHash
	seats := []Target{{Name: 10}, {Name: 20}, {Name: 30}, {Name: 40}}
	counts := map[uint64]int{}
	for head := uint64(1); head <= 4000; head++ {
		p := Prompt{Tokens: 1000, Head: head}
		first := seats[r.Choose(p, seats, rnd)].Name
		counts[first]++
		fewer := []Target{{Name: 40}, {Name: 20}, {Name: 10}} // 30 left, and the order changed
		if again := fewer[r.Choose(p, fewer, rnd)].Name; first != 30 && again != first {
			t.Fatalf("head %d moves from %d to %d though it need not", head, first, again)
		}
		busy := append([]Target(nil), seats...)
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
	seats := make([]Target, 5)
	for i, r := range []Rule{twoState, tracker, overlap, prefixHash} {
		counts := make([]int, len(seats))
		for range 5000 {
			counts[r.Choose(Prompt{Tokens: 100}, seats, rnd)]++
		}
		for k, n := range counts {
			if n < 850 || n > 1150 {
				t.Errorf("rule %d takes replica %d %d times of 5000", i, k, n)
			}
		}
	}
}
