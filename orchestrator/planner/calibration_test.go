package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// slowOne is a fleet in which p2 has been seen to prefill eight times slower than the profile says, and p1 as
// it says.
func slowOne(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(2, 1, nil)
	profile := estimate.DefaultSpeed()
	for i := range uint32(12) {
		r := f.request(100+i, 4000)
		r.LocalOK, r.AvoidPrefill = false, []replica.ID{"p1"}
		slower := 8.0
		if i%2 == 0 {
			r.AvoidPrefill, slower = []replica.ID{"p2"}, 1
		}
		b := f.plan(t, r)
		took := time.Duration(slower * profile.Prefill(4000, 0) * float64(time.Second))
		f.pass(took)
		f.pl.PrefillDone(b, 0, took, f.now)
		f.pl.Finish(b, 4000, 10, took, took+time.Second, f.now)
	}
	f.pass(5 * time.Second)
	for _, r := range f.ps {
		f.says(f.prefill, r.ID, 0, 0, 0)
	}
	f.says(f.decode, "d1", 0, 0, 0)
	return f
}

// What was learned decides, or not, or is told beside what was decided.
func TestCalibration(t *testing.T) {
	for _, c := range []struct {
		mode    Calibration
		held    replica.ID // which prefill replica holds part of the prompt: it is the better one by the profile
		prefill replica.ID
		shadow  replica.ID // what the shadow would have taken, "" for no shadow
		regret  bool
	}{
		{CalibrateOn, "p2", "p1", "", false},
		{CalibrateOff, "p2", "p2", "", false},
		{CalibrateShadow, "p2", "p2", "p1", true},
		{CalibrateShadow, "p1", "p1", "p1", false},
	} {
		t.Run(c.mode.String()+" "+string(c.held), func(t *testing.T) {
			f := slowOne(t)
			f.set(Policy{Calibration: c.mode})
			f.store(t, f.prefill, c.held, 9, 150)
			r := f.request(9, 4000)
			r.LocalOK = false
			b := f.plan(t, r)
			if b.Prefill.ID != c.prefill {
				t.Errorf("%s is chosen, want %s: %s", b.Prefill.ID, c.prefill, b.Decision.Reason)
			}
			s := b.Decision.Shadow
			if (s != nil) != (c.shadow != "") {
				t.Fatalf("shadow %+v", s)
			}
			if s != nil && (s.Prefill != c.shadow || s.Decode != "d1" || s.Mode != Split || s.Same == c.regret ||
				(s.Regret > 1) != c.regret) {
				t.Errorf("shadow %+v, want %s with a regret: %t", s, c.shadow, c.regret)
			}
			b.Release(f.now)
			checkLedgers(t, f)
		})
	}
}

// checkLedgers wants that a shadow books nothing.
func checkLedgers(t *testing.T, f *fleet) {
	t.Helper()
	if n := f.prefill.Status(f.now)[0].Requests + f.decode.Status(f.now)[0].Leases; n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// Links count as learned, as the operator says, or as learned in the shadow alone; the plan after a shadow is
// as the one before.
func TestCalibrationOfLinks(t *testing.T) {
	f := newFleet(1, 2, nil)
	slow := f.ds[0]
	teach := func() {
		for range 50 {
			f.teachLink(&f.ps[0], &slow, 10./(1<<30))
		}
	}
	for _, c := range []struct {
		mode   Calibration
		slow   bool // d1 may be chosen
		shadow bool
	}{{CalibrateOn, false, false}, {CalibrateOff, true, false}, {CalibrateShadow, true, true}} {
		f.set(Policy{Calibration: c.mode})
		teach()
		chosen, reported := map[replica.ID]int{}, 0
		for i := range uint32(40) {
			r := f.request(300+i, 8000)
			r.LocalOK = false
			teach() // it still is: who was slow long ago is tried again
			b := f.plan(t, r)
			chosen[b.Decode.ID]++
			if s := b.Decision.Shadow; s != nil && b.Decode.ID == slow.ID && s.Decode != slow.ID && s.Regret > 10 {
				reported++
			}
			b.Release(f.now)
			f.pass(time.Minute)
			for _, d := range f.ds {
				f.says(f.decode, d.ID, 0, 0, 0)
			}
			f.says(f.prefill, "p1", 0, 0, 0)
		}
		if (chosen[slow.ID] > 0) != c.slow || (reported > 0) != c.shadow ||
			c.shadow && reported != chosen[slow.ID] {
			t.Errorf("%v: chosen %v, told %d times", c.mode, chosen, reported)
		}
	}
}
