package estimate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Lengths from before a restart are the expectation after the restart, until new samples replace them.
func TestCountsOutliveAProcess(t *testing.T) {
	before := NewOutputLength(256, 5, 0)
	for range 400 {
		before.Learn(0, 1500)
	}
	after := NewOutputLength(256, 5, 0)
	if !after.Restore(before.Counts(), 1) {
		t.Fatal("nothing was taken")
	}
	if got := after.Rest(0, -1); got < 1100 || got > 1600 {
		t.Errorf("%d tokens are expected, want nearly the 1,500 of before", got)
	}
	if after.Restore(before.Counts(), 1) {
		t.Error("taken twice")
	}
	for range 100 {
		after.Learn(0, 50)
	}
	if got := after.Rest(0, -1); got > 650 {
		t.Errorf("after 100 answers of 50 tokens %d are expected", got)
	}
}

// After any saved state, an expected length stays within the limit.
func TestWhateverIsRestoredIsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1000),
			rapid.SampledFrom([]float64{0, 1, -1, 1e300, math.Inf(1), math.NaN()}))
		some := rapid.SliceOfN(number, 0, lengthBuckets+2)
		l := NewOutputLength(256, 5, 0)
		under := l.Part()
		events := rapid.Uint64().Draw(t, "events")
		l.Restore(LengthCounts{
			some.Draw(t, "ended"), some.Draw(t, "tokens"), some.Draw(t, "beyond"), events,
		}, number.Draw(t, "believed"))
		n := rapid.IntRange(0, lengthBuckets).Draw(t, "buckets")
		same := rapid.SliceOfN(rapid.Float64Range(0, 1e6), n, n)
		under.Restore(LengthCounts{
			same.Draw(t, "ended"), same.Draw(t, "tokens"), same.Draw(t, "beyond"), events,
		}, rapid.Float64Range(0, 1).Draw(t, "believed, too"))
		have, limit := rapid.IntRange(0, 1<<21).Draw(t, "have"), rapid.IntRange(0, 1<<21).Draw(t, "limit")
		for _, of := range []*OutputLength{l, under} {
			rest, room := of.Rest(have, limit), of.Room(have, limit)
			if rest < 0 || rest > limit || room < rest || room > limit {
				t.Errorf("%d are expected and %d may be, at most %d", rest, room, limit)
			}
			if free := of.Rest(have, -1); free < 0 || free > 1<<22 {
				t.Errorf("%d are expected without a limit", free)
			}
		}
	})
}

func TestSpeedsOutliveAProcess(t *testing.T) {
	now := time.Unix(1000, 0)
	parts := DefaultSpeed().StepParts(16, 16_000)
	whole := parts[0] + parts[1] + parts[2]
	var before, after, pool DecayingFit
	if _, known := before.State(); known {
		t.Error("a fit that measured nothing has a state")
	}
	for range 50 {
		now = now.Add(2 * time.Second)
		before.LearnAt(Took(PromptTime, parts, 3*whole, now))
	}
	s, known := before.State()
	if !known || !after.Restore(s, now) || after.Restore(s, now) {
		t.Fatalf("state %+v, %v", s, known)
	}
	f, known := after.Of(&pool.SpeedFit, 0)
	if got := f.sum(parts) / whole; !known || math.Abs(got-3) > 0.2 {
		t.Errorf("a step takes %.2f times the profile's, want 3", got)
	}
	for range 8 {
		now = now.Add(2 * time.Second)
		after.LearnAt(Took(PromptTime, parts, whole, now))
	}
	if got := after.Expects(parts) / whole; got > 1.3 {
		t.Errorf("after eight samples of an engine as quick as its profile it is taken for %.2f times as slow", got)
	}
	all := [3]bool{true, true, true}
	for _, bad := range []FitState{
		{},
		{now, [3]float64{1, 1, 1}, [3]bool{}},
		{now, [3]float64{0, 1, 1}, all},
		{now, [3]float64{1, math.NaN(), 1}, all},
		{now, [3]float64{1, 1e9, 1}, all},
	} {
		var fit DecayingFit
		if fit.Restore(bad, now) || fit.Known() {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// The older a saved state is, the less it counts, until the expectation is that of an unknown pool.
func TestWhatWasLearnedFades(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		age  time.Duration
		want float64
	}{{-time.Hour, 1}, {0, 1}, {6 * time.Hour, 0.5}, {24 * time.Hour, 1. / 16}} {
		near(t, "believed", Faded(now.Add(-c.age), now), c.want, 1e-9)
	}
	all := [3]bool{true, true, true}
	var fit, pool DecayingFit
	if !fit.Restore(FitState{now.Add(-6 * time.Hour), [3]float64{4, 4, 4}, all}, now) {
		t.Fatal("nothing was taken")
	}
	f, _ := fit.Of(&pool.SpeedFit, 0)
	near(t, "of four times as slow, six hours ago", f[0], 2, 1e-9)

	answers := NewOutputLength(256, 5, 0)
	for range 400 {
		answers.Learn(0, 1500)
	}
	last := 1500
	for _, believed := range []float64{1, 0.5, 0.1, 0.02} {
		old := NewOutputLength(256, 5, 0)
		if !old.Restore(answers.Counts(), believed) {
			t.Fatalf("nothing was taken by %g", believed)
		}
		got := old.Rest(0, -1)
		if got >= last {
			t.Errorf("believed by %g %d tokens are expected, and %d by more", believed, got, last)
		}
		last = got
	}
	if NewOutputLength(256, 5, 0).Restore(answers.Counts(), 0.001) {
		t.Error("a 20th of an answer was taken")
	}
}
