package estimate

import (
	"testing"
	"time"
)

// memory returns a fit with n samples, one per second. Each took the given multiple of the profile's time.
func memory(samples int, times float64) *DecayingFit {
	var m DecayingFit
	for i := range samples {
		m.LearnAt(Took(StepTime, Work{1, 0, 0}, times, time.Unix(1000+int64(i), 0)))
	}
	return &m
}

func TestCompare(t *testing.T) {
	parts := [3]float64{1, 0, 0}
	for _, tt := range []struct {
		name            string
		all             []*DecayingFit
		known           bool
		slow, stillSlow bool
		than            int
	}{
		{"twenty times as slow", []*DecayingFit{memory(10, 20), memory(10, 3), memory(10, 1)}, true, true, true, 2},
		{"as fast", []*DecayingFit{memory(10, 1), memory(10, 1)}, true, false, false, 1},
		{"between", []*DecayingFit{memory(20, 2), memory(20, 1)}, true, false, true, 1},
		{"faster", []*DecayingFit{memory(10, 1), memory(10, 20)}, true, false, false, 1},
		{"not measured", []*DecayingFit{memory(2, 20), memory(10, 1)}, false, false, false, -1},
		{"nobody else was measured", []*DecayingFit{memory(10, 20), memory(1, 1)}, true, false, false, -1},
		{"alone", []*DecayingFit{memory(10, 20)}, true, false, false, -1},
	} {
		s := Compare(tt.all, 0, new(SpeedFit), parts)
		slow, still := s.IsSlow(false), s.IsSlow(true)
		if s.Known != tt.known || slow != tt.slow || still != tt.stillSlow || s.Than != tt.than {
			t.Errorf("%s: %+v, slow %v, still slow %v", tt.name, s, slow, still)
		}
	}
}

// A replica without requests for a long time is priced like the others again, but still counts as slow.
func TestNobodyIsFasterForNotBeingAsked(t *testing.T) {
	fast, slow := memory(10, 1), memory(10, 20)
	slow.Ease(&fast.SpeedFit, time.Unix(2000, 0))
	if got := slow.at(0); got > 1.1 {
		t.Errorf("priced at %.1f times the profile after a quarter of an hour", got)
	}
	if s := Compare([]*DecayingFit{slow, fast}, 0, new(SpeedFit), [3]float64{1, 0, 0}); !s.IsSlow(false) {
		t.Errorf("no longer slow: %+v", s)
	}
}

// The longer a replica was not tried, the more a request may lose by trying it.
func TestATrialCostsAShareOfTheTimeSinceTheLast(t *testing.T) {
	fast, slow := memory(10, 1), memory(10, 20)
	last, own := slow.Learned(), slow.at(0)
	if _, eased := slow.Eased(last); eased {
		t.Error("eased at once")
	}
	for _, after := range []time.Duration{100 * time.Second, time.Hour} {
		slow.Ease(&fast.SpeedFit, last.Add(after))
		risk, eased := slow.Eased(last.Add(after))
		near(t, "risk", risk, 0.1*after.Seconds(), 1e-6)
		if !eased {
			t.Errorf("not eased after %v", after)
		}
	}
	profile := DefaultSpeed()
	p := Pricing{Speed: profile, Measured: profile.WithPrefill(Factors{20, 20, 20}), Risk: 10}
	near(t, "a short prompt", p.Prefill(1000, 0), profile.Prefill(1000, 0), 1e-9)
	near(t, "one that would take a minute", p.Prefill(50_000, 0), 20*profile.Prefill(50_000, 0)-10, 1e-9)
	slow.Recall(last.Add(time.Hour))
	near(t, "while somebody tries", slow.at(0), own, 1e-9)
}
