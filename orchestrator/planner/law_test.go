package planner

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/scoring"
)

// choice returns a number from 0 to most, drawn for the named purpose.
type choice func(what string, most int) int

// anyFleet is a busy fleet of up to six replicas per pool, with any places and loads: blocks are stored,
// transfers and local prefills run, and some replicas and pairs fail.
func anyFleet(t fataler, pick choice) *fleet {
	f := newFleet(pick("prefills", 6), 1+pick("decodes", 5), func(r *replica.Replica) {
		r.Place = replica.Place{Rack: fmt.Sprint("r", pick("rack", 2)), Zone: fmt.Sprint("z", pick("zone", 1))}
		if pick("old version", 7) == 0 {
			r.Facts.Version = "0.31.0"
		}
	})
	f.set(anyPolicy(pick))
	for i := range f.ps {
		f.says(f.prefill, f.ps[i].ID, pick("running", 3), pick("waiting", 2), float64(pick("usage", 9))/10)
	}
	for j := range f.ds {
		f.says(f.decode, f.ds[j].ID, pick("running", 30), 0, float64(pick("usage", 9))/10)
	}
	for _, r := range f.ps {
		if pick("holds a prefix", 2) == 0 {
			f.store(t, f.prefill, r.ID, uint32(1+pick("prompt", 3)), 1+pick("blocks", 400))
		}
	}
	for _, r := range f.ds {
		if pick("holds a prefix", 2) == 0 {
			f.store(t, f.decode, r.ID, uint32(1+pick("prompt", 3)), 1+pick("blocks", 400))
		}
	}
	f.happen(pick)
	return f
}

func anyPolicy(pick choice) Policy {
	p := Policy{
		Weights:  usualWeights(),
		Ejection: outlier.Settings{Failures: 3, Share: 0.5, Base: time.Second, Max: time.Minute},
	}
	switch pick("weights", 3) {
	case 0:
		p.Weights.Alpha = scoring.Alpha{Value: 1}
		p.Weights.Beta = 2
		p.Weights.DecodePenalty = 1
	case 1:
		p.Weights = scoring.Weights{Units: scoring.InRaw, Alpha: scoring.Alpha{Value: 1}, Beta: 1, Gamma: 10}
	}
	if pick("links", 1) == 0 {
		p.Links = [replica.Links]float64{100e9, 10e9, 1e9, 3e8}
	}
	if pick("ties", 2) == 0 {
		p.TieAbsolute, p.TieRelative = -1, -1
	}
	return p
}

// happen lets requests come. Some of the requests end.
func (f *fleet) happen(pick choice) {
	for range pick("events", 12) {
		f.pass(time.Duration(pick("pause", 300)) * time.Millisecond)
		r := f.request(uint32(1+pick("prompt", 3)), 100+400*pick("tokens", 40))
		r.SplitOK, r.LocalOK = pick("split", 4) > 0, pick("local", 4) > 0
		b, err := f.pl.Plan(r, f.now)
		if err != nil {
			continue
		}
		switch pick("end", 4) {
		case 0:
			b.Release(f.now)
			b.Failed(Fault{On: Blame(1 + pick("blame", 2)), Kind: outlier.Broken, Took: time.Second, At: f.now},
				f.now)
		case 1:
			b.PrefillLease.Done(0, time.Second, f.now)
		case 2:
			b.Release(f.now)
		}
	}
}

func (f *fleet) anyRequest(pick choice) *Request {
	r := f.request(uint32(1+pick("prompt", 3)), 1+300*pick("tokens", 60))
	if pick("avoid", 3) == 0 && len(f.ps) > 0 {
		r.AvoidPairs = []Pairing{{Prefill: f.ps[0].ID, Decode: f.ds[0].ID}}
	}
	return r
}

// A decision reports what it decides by: the cost of every plan is the sum of the terms that records, spans
// and the terminal list.
func TestCostIsTheSumOfTheReportedTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		f := anyFleet(t, pick)
		if _, err := f.pl.Explain(f.anyRequest(pick), f.now); err != nil {
			return
		}
		b := f.pl.comparison
		check := func(i, j int, cost float64) {
			sum := 0.0
			for _, seconds := range b.terms(scoring.Choice{Prefill: int32(i), Decode: int32(j)}).All() {
				sum += seconds
			}
			if math.Abs(sum-cost) > 1e-12*(1+math.Abs(cost)) {
				t.Fatalf("the plan of candidates %d and %d costs %v, the sum of its terms is %v", i, j, cost, sum)
			}
		}
		for j := range b.decodes {
			if cost, ok := b.table.Alone(j); ok {
				check(-1, j, cost)
			}
			for i := range b.prefills {
				if cost, ok := b.table.Cost(i, j); ok {
					check(i, j, cost)
				}
			}
		}
	})
}

// No possible plan is better than the chosen one by more than a tie.
func TestNoPlanIsBetterThanTheChosenOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		f := anyFleet(t, pick)
		if _, err := f.pl.Explain(f.anyRequest(pick), f.now); err != nil {
			return
		}
		b := f.pl.comparison
		least := math.Inf(1)
		for _, c := range append(b.best[:], b.locals[:]...) {
			least = min(least, c.Cost)
		}
		if got := b.terms(b.chosen).Total(); got > b.table.Limit(least)+1e-9 {
			t.Fatalf("chose a plan of %v, the best costs %v", got, least)
		}
	})
}

// The pressure of a plan is gamma times the expected loss on its replicas, by their KV use. Twice the gamma
// doubles this term and changes no other.
func TestGammaWeighsThePressureAlone(t *testing.T) {
	loaded := 0
	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		f := anyFleet(t, pick)
		if _, err := f.pl.Explain(f.anyRequest(pick), f.now); err != nil {
			return
		}
		b, weights := f.pl.comparison, f.pl.policy.Weights
		model := f.pl.policy.model
		check := func(i, j int, usage ...float64) {
			c := scoring.Choice{Prefill: int32(i), Decode: int32(j)}
			want := b.terms(c)
			if lost := weights.Gamma * lostTo(weights.Units, usage...); math.Abs(want.Pressure-lost) > 1e-12 {
				t.Fatalf("the pressure of candidates %d and %d is %v, want %v", i, j, want.Pressure, lost)
			}
			if want.Pressure > 0 {
				loaded++
			}
			want.Pressure *= 2
			f.pl.policy.model = twiceGamma(model)
			if got := b.terms(c); got != want {
				t.Fatalf("candidates %d and %d have %+v with twice the gamma, want %+v", i, j, got, want)
			}
			f.pl.policy.model = model
		}
		for j := range b.decodes {
			alone := []float64{b.decodes[j].Usage}
			if weights.Units == scoring.InRaw { // the formula counts the replica as both sides
				alone = append(alone, alone...)
			}
			check(-1, j, alone...)
			for i := range b.prefills {
				check(i, j, b.prefills[i].Usage, b.decodes[j].Usage)
			}
		}
	})
	if loaded == 0 {
		t.Error("no plan had any pressure: the test shows nothing")
	}
}

// lostTo is the pressure of replicas with these shares of KV in use, by docs/scoring.md.
func lostTo(units scoring.Units, usage ...float64) (sum float64) {
	for _, u := range usage {
		switch {
		case math.IsNaN(u) || u <= 0:
		case units == scoring.InRaw:
			sum += u
		default:
			sum += 0.05 * min(u, 0.98) / (1 - min(u, 0.98))
		}
	}
	return sum
}

func twiceGamma(m scoring.Model) scoring.Model {
	switch m := m.(type) {
	case *scoring.Seconds:
		twice := *m
		twice.Gamma *= 2
		return &twice
	case *scoring.Raw:
		twice := *m
		twice.Gamma *= 2
		return &twice
	}
	panic("a third model")
}
