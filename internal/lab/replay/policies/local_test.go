package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// pairOf is a policy that always chooses the same pair.
type pairOf struct{ p, d int }

func (x pairOf) Pick(*Query, []Replica, []Replica) (p, d int) { return x.p, x.d }

func TestLocalRule(t *testing.T) {
	speed := estimate.Speed{A: 1e-3} // 1 s for 1,000 tokens
	idle := Replica{Capacity: 100_000, Speed: speed}
	busy := Replica{Capacity: 100_000, Speed: speed, Requests: 4, Tokens: 4000, Work: 4 * time.Second}
	holds := idle
	holds.Matched = 600
	full := holds
	full.Prompts = 99_500
	for _, tt := range []struct {
		name string
		rule string
		p    []Replica
		d    []Replica
		want [2]int
	}{
		{"as Dynamo: 1,000 are fewer, but all of it", "", []Replica{idle}, []Replica{idle}, [2]int{0, 0}},
		{"as Dynamo: 400 are fewer, and 40 %", "", []Replica{idle}, []Replica{holds}, [2]int{-1, 0}},
		{"below a threshold", ":tokens=1001", []Replica{idle}, []Replica{idle}, [2]int{-1, 0}},
		{"not below it", ":tokens=1000", []Replica{idle}, []Replica{idle}, [2]int{0, 0}},
		{"the chosen one has nothing", ":tokens=500", []Replica{idle}, []Replica{idle, holds}, [2]int{0, 0}},
		{"another one has", ":tokens=500:near=1", []Replica{idle}, []Replica{idle, holds}, [2]int{-1, 1}},
		{"one waits", ":queue=4", []Replica{busy}, []Replica{idle}, [2]int{0, 0}},
		{"six wait", ":queue=4", []Replica{busy, busy}, []Replica{idle}, [2]int{-1, 0}},
		{"5 s by the pair, twice 1 s", ":k=2", []Replica{busy}, []Replica{busy, idle}, [2]int{-1, 1}},
		{"1 s by the pair", ":k=2", []Replica{idle}, []Replica{idle}, [2]int{0, 0}},
		{"5 s and 1 s, as often as it takes", ":k=6", []Replica{busy}, []Replica{idle}, [2]int{0, 0}},
		{"others stand still", ":k=1:pause=0.1", []Replica{busy}, []Replica{busy}, [2]int{0, 0}},
		{"no room for it", ":k=1", []Replica{busy}, []Replica{full}, [2]int{0, 0}},
	} {
		x, err := localize(pairOf{}, withLocal+tt.rule)
		if err != nil {
			t.Fatal(err)
		}
		q := query(1000)
		q.PerToken = func(int, int) float64 { return 0 }
		if p, d := x.Pick(q, tt.p, tt.d); [2]int{p, d} != tt.want {
			t.Errorf("%s: %d and %d, want %v", tt.name, p, d, tt.want)
		}
	}
}

// A request that the policy already prefills on its decode replica stays there.
func TestLocalRuleLeavesTheRest(t *testing.T) {
	x := &localRule{Picker: pairOf{-1, 1}, tokens: 1e9, share: 1}
	if p, d := x.Pick(query(10), make([]Replica, 1), make([]Replica, 2)); p != -1 || d != 1 {
		t.Errorf("the pick became %d and %d", p, d)
	}
}

func TestLocalNames(t *testing.T) {
	for _, rule := range Locals() {
		if _, err := New("lmetric"+rule, fleet(), 1); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
	grid, err := Grid("dynamo:local=0+local:k=2")
	if err != nil || !slices.Contains(grid, "dynamo:local=0:credit=1.5+local:k=2") {
		t.Errorf("%v: %q", err, grid)
	}
	for name, want := range map[string]string{
		"tandem+local:k=2":  "decides by itself",
		"random+locale":     "want a rule like",
		"random+local:x=2":  `no parameter "x=2"`,
		"oracle+local":      "decides by itself",
		"random+local:k=ab": "no number",
	} {
		if _, err := New(name, fleet(), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// An unsplit fleet leaves nothing to choose.
	alone := fleet()
	alone.Nodes[cluster.Prefill] = nil
	r, err := New("lmetric+local:k=2", alone, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p, _, room := r.Place(&cluster.Query{Tokens: 10}, cluster.Time(0)); p != -1 || !room {
		t.Errorf("prefill at %d, room %v", p, room)
	}
}

// In an unsplit pool, Dynamo counts both the active tokens and the tokens to be computed.
func TestDynamoMixed(t *testing.T) {
	ps := []Replica{{Matched: 900, Prompts: 5000}, {Matched: 0, Prompts: 0}}
	for credit, want := range map[float64]int{1: 1, 4: 1, 6: 0} {
		x := &dynamoMixed{credit: credit, blocks: 1}
		if p, _ := x.Pick(query(1000), ps, ps); p != want {
			t.Errorf("credit %g: %d, want %d", credit, p, want)
		}
	}
}
