package estimate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want)+1e-12 {
		t.Errorf("%s = %g, want %g within %g %%", what, got, want, share*100)
	}
}

func TestSpeed(t *testing.T) {
	s := DefaultSpeed()
	near(t, "2k prefill", s.Prefill(2048, 0), 0.044, 0.1) // the measured table says 44 ms
	near(t, "8k prefill", s.Prefill(8192, 0), 0.203, 0.1) // 203 ms
	near(t, "step of 32 x 1k", s.Step(32, 32<<10), 0.0085, 0.1)
	near(t, "tail behind a match", s.Prefill(100, 4000), 4.5e-3+100*16.8e-6+1.45e-9*(100*4000+5000), 1e-9)
	if r := Rates(10_000, 0).Or(s); r.Prefill(10_000, 5000) != 1 || r.D0 != s.D0 {
		t.Errorf("Rates(10000, 0) = %+v, want one second for 10,000 tokens and the default's decode half", r)
	}
}

func TestFitFindsAnEngineUnlikeItsProfile(t *testing.T) {
	profile := DefaultSpeed()
	for _, tt := range []struct {
		name     string
		truth    Speed
		outliers int // every n-th sample
		within   float64
	}{
		{"as the profile says", profile, 0, 0.05},
		{"70B on four cards", Speed{T0: 10.7e-3, A: 55.2e-6, B: 2.13e-9}, 0, 0.1},
		{"70B with outliers", Speed{T0: 10.7e-3, A: 55.2e-6, B: 2.13e-9}, 20, 0.15},
		{"a CPU, forty times slower", Speed{T0: 0.1, A: 700e-6, B: 10e-9}, 20, 0.2},
		{"five times faster", Speed{T0: 1e-3, A: 3e-6, B: 0.3e-9}, 0, 0.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f SpeedFit
			rnd := rand.New(rand.NewPCG(1, 2))
			for i := range 300 {
				u, c := 50+rnd.IntN(16000), rnd.IntN(30000)
				took := tt.truth.Prefill(u, c) * (0.95 + 0.1*rnd.Float64())
				if tt.outliers > 0 && i%tt.outliers == tt.outliers-1 {
					took *= 15
				}
				f.Learn(profile.PrefillParts(u, c), took)
			}
			got := profile.WithPrefill(f.Within(&f))
			for _, at := range [][2]int{{500, 0}, {8000, 0}, {2000, 20000}} {
				near(t, "prefill", got.Prefill(at[0], at[1]), tt.truth.Prefill(at[0], at[1]), tt.within)
			}
		})
	}
}

func TestFitForgetsAReplacedEngine(t *testing.T) {
	profile := DefaultSpeed()
	var f SpeedFit
	for range 200 {
		f.Learn(profile.PrefillParts(4000, 0), profile.Prefill(4000, 0))
	}
	f.Learn(profile.PrefillParts(4000, 0), 60*profile.Prefill(4000, 0))
	ratio := func() float64 {
		s := profile.WithPrefill(f.Within(&f))
		return s.Prefill(4000, 0) / profile.Prefill(4000, 0)
	}
	if r := ratio(); r > 1.15 {
		t.Errorf("one outlier among 200 samples moved the estimate %g fold", r)
	}
	for range 6 {
		f.Learn(profile.PrefillParts(4000, 0), 8*profile.Prefill(4000, 0))
	}
	near(t, "estimate after six samples of the new engine", ratio(), 8, 0.2)
}

// The first samples of an engine that became three times slower each move the learned factor. Once the fit
// has followed, the same samples do not move it again.
func TestFitDoesNotFollowTwice(t *testing.T) {
	profile, truth := DefaultSpeed(), Speed{T0: 15e-3, A: 55e-6, B: 2e-9}
	var f SpeedFit
	for _, uncached := range []int{1340, 1, 813, 1500, 16, 2000} {
		f.Learn(profile.PrefillParts(uncached, 0), truth.Prefill(uncached, 0))
		if uncached == 1340 {
			continue
		}
		for _, tokens := range []int{16, 1000} {
			got := profile.WithPrefill(f.Within(&f)).Prefill(tokens, 0)
			near(t, fmt.Sprintf("%d tokens after a sample of %d", tokens, uncached), got, truth.Prefill(tokens, 0),
				0.25)
		}
	}
}

func TestFitStaysPositiveAndFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f SpeedFit
		profile := DefaultSpeed()
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			u := rapid.IntRange(0, 200_000).Draw(t, "uncached")
			c := rapid.IntRange(0, 200_000).Draw(t, "cached")
			f.Learn(profile.PrefillParts(u, c), rapid.Float64Range(-1, 2000).Draw(t, "took"))
		}
		s := profile.WithPrefill(f.Within(&f))
		for _, k := range []struct{ got, base float64 }{{s.T0, profile.T0}, {s.A, profile.A}, {s.B, profile.B}} {
			if r := k.got / k.base; !(r >= 0.99/factorCap) || !(r <= 1.01*factorCap) {
				t.Fatalf("factor %g is out of bounds", r)
			}
		}
	})
}

func TestUtilization(t *testing.T) {
	start := time.Unix(1000, 0)
	var m Utilization
	if m.Rho(start) != 0 {
		t.Errorf("unused: rho %g, want 0", m.Rho(start))
	}
	for s := range 600 { // 0.4 s of work every second
		m.Add(start.Add(time.Duration(s)*time.Second), 0.4)
	}
	end := start.Add(600 * time.Second)
	near(t, "steady rho", m.Rho(end), 0.4, 0.02)
	near(t, "rho two minutes later", m.Rho(end.Add(120*time.Second)), 0.4/math.E, 0.03)
	if r := m.Rho(start); r < 0.39 {
		t.Errorf("a clock reading of the past gives %g, want no more decay than at the last addition", r)
	}
	var fresh Utilization
	for s := range 30 {
		fresh.Add(start.Add(time.Duration(s)*time.Second), 0.9)
	}
	near(t, "rho after half a minute", fresh.Rho(start.Add(30*time.Second)), 0.9, 0.05)
}

// The part of its window that a meter has seen is computed only if it is not known beforehand.
func TestThePartOfTheWindowIsExact(t *testing.T) {
	for _, seen := range []time.Duration{
		0, meterWarm - 1, meterWarm, meterWarm + 1, meterWindow, meterFull, meterFull + 1, 1000 * time.Hour,
	} {
		window := max(seen, meterWarm).Seconds() / meterWindow.Seconds()
		if got, want := meterPart(seen), -math.Expm1(-window); got != want {
			t.Errorf("after %v the part is %v, want %v", seen, got, want)
		}
	}
}

func TestOutputLength(t *testing.T) {
	l := NewOutputLength(256, 1, 0)
	near(t, "first guess", float64(l.Rest(0, -1)), 256, 0.15)
	near(t, "no memory", float64(l.Rest(200, -1)), 256, 0.4)
	for range 2000 {
		l.Learn(0, 100)
	}
	near(t, "learned", float64(l.Rest(0, -1)), 100, 0.05)
	near(t, "what is left", float64(l.Rest(60, -1)), 40, 0.1)
	if got := l.Rest(0, 10); got != 10 {
		t.Errorf("limited to 10: %d", got)
	}
	if got := l.Rest(4000, -1); got < 500 || got > 1500 {
		t.Errorf("longer than any before: %d more, want about a quarter of its age", got)
	}
	if got := l.Rest(4000, 0); got != 0 {
		t.Errorf("at its limit: %d more, want 0", got)
	}
}

func TestArrivalRate(t *testing.T) {
	var p ArrivalRate
	now := time.Unix(1000, 0)
	if got := p.Rate(now); got != 0 {
		t.Errorf("of nothing: %g a second", got)
	}
	for range 30 { // a burst at the start is no pace
		p.Add(now)
	}
	near(t, "a burst", p.Rate(now), 2, 1e-9)
	for range 2000 {
		now = now.Add(250 * time.Millisecond)
		p.Add(now)
	}
	near(t, "four a second", p.Rate(now), 4, 0.01)
	for range 100 {
		now = now.Add(2 * time.Second)
		p.Add(now)
	}
	near(t, "one in two seconds", p.Rate(now), 0.5, 0.05)
	if got, want := p.Rate(now.Add(time.Minute)), p.Rate(now)/2; got > want {
		t.Errorf("when nobody has come for a minute: %g a second, want at most %g", got, want)
	}
	if got := p.Rate(now.Add(-time.Hour)); got < 0 || got > 2 {
		t.Errorf("by a clock that was set back: %g a second", got)
	}
}

// TestGivenRatesKnowLoad: a configured rate for one request does not mean that further requests cost
// nothing.
func TestGivenRatesKnowLoad(t *testing.T) {
	s, profile := Rates(0, 50), DefaultSpeed()
	if got := s.Step(0, 0); math.Abs(got-0.02) > 1e-12 {
		t.Errorf("a step of one request alone: %v s, want 0.02", got)
	}
	for _, tokens := range []int{0, 100, 10_000} {
		got, want := s.Marginal(tokens)/s.D0, profile.Marginal(tokens)/profile.D0
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%d tokens make a step longer by %v of it, want %v as in the profile", tokens, got, want)
		}
	}
}
