package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

var (
	interactive = scoring.Goals{TTFT: 500 * time.Millisecond, TPOT: 12 * time.Millisecond}
	batch       = scoring.Goals{TTFT: 10 * time.Second, TPOT: 200 * time.Millisecond}
)

// full lets n streams decode on d1, all with the same goals.
func (f *fleet) full(t *testing.T, streams int, goals scoring.Goals) (all []*Booking) {
	t.Helper()
	for i := range streams {
		r := f.request(uint32(1000+i), 200)
		r.ID, r.Goals = fmt.Sprintf("stream-%d", i), goals
		r.LocalOK = false
		r.AvoidDecode = []replica.ID{"d2"}
		b := f.plan(t, r)
		b.PrefillLease.Done(0, time.Millisecond, f.now)
		b.DecodeLease.MarkSent(f.now)
		f.pl.FirstToken(b, f.now)
		all = append(all, b)
	}
	return all
}

// terms returns the terms of the plan that decodes on id.
func terms(t *testing.T, d *Decision, mode Mode, id replica.ID) scoring.Terms {
	t.Helper()
	for i := range d.Plans {
		if d.Plans[i].Decode == id && d.Plans[i].Mode == mode {
			return d.Plans[i].Terms
		}
	}
	t.Fatalf("no plan with %s: %+v", id, d.Plans)
	return scoring.Terms{}
}

func (f *fleet) explain(t *testing.T, goals scoring.Goals, waited time.Duration) *Decision {
	t.Helper()
	r := f.request(7, 2000)
	r.Goals, r.Waited = goals, waited
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The cost of delaying running streams depends on their goals: streams far from their goal cost less than
// streams without a goal, and streams near their goal cost more.
func TestStreamsAreProtectedByTheirGoals(t *testing.T) {
	cost := func(goals scoring.Goals) (decode, interference float64) {
		f := newFleet(1, 2, nil)
		f.full(t, 300, goals)
		d := f.explain(t, scoring.Goals{}, 0)
		return terms(t, d, Split, "d1").Decode, terms(t, d, Local, "d1").Interference
	}
	lax, laxPause := cost(batch)
	none, nonePause := cost(scoring.Goals{})
	strict, strictPause := cost(interactive)
	if lax > none/100 || strict < 1.5*none {
		t.Errorf("one more request costs streams with a far goal %v ms, without goals %v, with a near goal %v",
			lax, none, strict)
	}
	if laxPause > nonePause/2 || strictPause < 1.5*nonePause {
		t.Errorf("a prompt costs streams with a far goal %v ms, without goals %v, with a near goal %v",
			laxPause, nonePause, strictPause)
	}
}

// The goals of ended streams do not count any more, to the last digit.
func TestEndedStreamsHaveNoGoals(t *testing.T) {
	f := newFleet(1, 2, nil)
	for _, b := range f.full(t, 10, interactive) {
		b.Release(f.now)
	}
	f.full(t, 10, scoring.Goals{})
	g := newFleet(1, 2, nil)
	for _, b := range g.full(t, 10, scoring.Goals{}) {
		b.Release(g.now)
	}
	g.full(t, 10, scoring.Goals{})
	had := terms(t, f.explain(t, scoring.Goals{}, 0), Split, "d1")
	never := terms(t, g.explain(t, scoring.Goals{}, 0), Split, "d1")
	if had != never {
		t.Errorf("%+v behind streams with goals, %+v without", had, never)
	}
}

// A request with a near TPOT goal avoids a full replica, and a request with a far goal does not. The time
// that a request has waited counts towards its first token.
func TestOwnGoals(t *testing.T) {
	f := newFleet(1, 2, nil)
	f.full(t, 300, batch)
	strict, lax := f.explain(t, interactive, 0), f.explain(t, batch, 0)
	if on := strict.Decode; on != "d2" {
		t.Errorf("a request with near goals goes to %s", on)
	}
	full, idle := terms(t, strict, Split, "d1").Late, terms(t, strict, Split, "d2").Late
	if full < 2*idle || full < 10*terms(t, lax, Split, "d1").Late {
		t.Errorf("late costs %v ms on the full replica and %v on the other", full, idle)
	}
	waited := f.explain(t, interactive, 400*time.Millisecond)
	if had := terms(t, waited, Split, "d2").Late; had < idle+100 {
		t.Errorf("late costs %v ms after a wait, and %v without", had, idle)
	}
	if none := terms(t, f.explain(t, scoring.Goals{}, 0), Split, "d2").Late; none != 0 {
		t.Errorf("late costs %v ms without goals", none)
	}
}
