package why

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tandem-router/tandem/orchestrator/policy"
	"github.com/tandem-router/tandem/scoring"
)

// A record does not say which plans tied, so the page uses the tie values of the decision.
func TestTiesAreThoseOfTheDecision(t *testing.T) {
	is := policy.Default()
	if tieMS != float64(is.TieAbsolute)/float64(time.Millisecond) || tieShare != is.TieRelative {
		t.Errorf("ties are %v ms and %v here, and %v and %v in the decision", tieMS, tieShare, is.TieAbsolute,
			is.TieRelative)
	}
}

// costing is a model in which a sender has a given cost, and receivers and pairs cost nothing.
type costing struct{ scoring.Model }

func (costing) Prefill(p *scoring.Prefill) scoring.Terms { return scoring.Terms{Failures: p.Failures} }
func (costing) Decode(*scoring.Decode) scoring.Terms     { return scoring.Terms{} }

// The plans that tie on a page are the plans among which the planner draws, in both units and for any costs.
func TestTiesAreThePlanners(t *testing.T) {
	is := policy.Default()
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		base := math.Pow(10, 5*r.Float64()-3)
		splits, local := make([]float64, r.IntN(4)), near(r, base)
		for i := range splits {
			splits[i] = near(r, base)
		}
		for units, m := range map[string]scoring.Model{"seconds": &scoring.Seconds{}, "raw": &scoring.Raw{}} {
			want, locals := drawn(costing{m}, m.Ties(is.TieAbsolute, is.TieRelative), splits, local)
			got, alone := onPage(units, splits, local)
			if got != want || alone != locals {
				t.Fatalf("%s, pairs for %v and alone for %v: %d are as good on the page, and %d to the planner; "+
					"alone: %t and %t", units, splits, local, got, want, alone, locals)
			}
		}
	}
}

// near is a cost that ties with base, or nearly ties.
func near(r *rand.Rand, base float64) float64 {
	share := []float64{0, 0, 0.01, 0.03}[r.IntN(4)]
	more := []float64{0, 0, 5e-10, 1e-3, 0.09, 0.11}[r.IntN(6)]
	return base*(1+share) + more
}

// drawn returns the number of plans that the planner draws among, and whether the Local plan is one.
func drawn(m scoring.Model, ties scoring.Ties, splits []float64, local float64) (n int, alone bool) {
	table := scoring.Table{Ties: ties, Local: []float64{local}}
	table.PairRates.Reset(1)
	table.AddReceiver(m, &scoring.Decode{}, 0)
	for i, cost := range splits {
		table.AddSender(m, &scoring.Prefill{Failures: cost}, i)
		table.Add(0)
	}
	table.Admit()
	best, locals := make([]scoring.Choice, 1), make([]scoring.Choice, 1)
	for seed := range uint64(64) { // of at most four plans: none is missed
		var chosen scoring.Choice
		chosen, n, _ = table.Choose(rand.New(rand.NewPCG(seed, seed)), best, locals)
		alone = alone || chosen.Prefill < 0
	}
	return n, alone
}

// onPage returns the same from the page of a record with these plans.
func onPage(units string, splits []float64, local float64) (n int, alone bool) {
	in, d := 1., &decision{Units: units}
	if units == "seconds" {
		in = 1e3 // milliseconds
	}
	totals := []float64{local * in}
	d.Plans = append(d.Plans, plan{Decode: "d"})
	for i, cost := range splits {
		totals = append(totals, cost*in)
		d.Plans = append(d.Plans, plan{Prefill: "p" + strconv.Itoa(i), Decode: "d"})
	}
	tied := (&Record{Decision: d}).tied(totals)
	return len(tied), tied[0] == 0
}
