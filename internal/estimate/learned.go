package estimate

import (
	"math"
	"slices"
	"time"
)

// This file has the saved form of learned lengths. A restored state is a start that new samples soon replace.

// LengthCounts is what an [OutputLength] has observed itself. Empty buckets at the end are left out.
type LengthCounts struct {
	Ended  []float64 `json:"ended,omitempty"`
	Tokens []float64 `json:"tokens,omitempty"`
	Beyond []float64 `json:"beyond,omitempty"`
	Events uint64    `json:"events,omitzero"` // that changed a count, see [OutputLength.Part]
}

const (
	restoredAnswers = 50  // restored answers count as at most so many
	leastRestored   = 0.5 // of an answer: a restored state that weighs less is ignored
	// The weight of a saved state halves every restoredHalf: last night's traffic predicts little of this
	// morning's.
	restoredHalf = 6 * time.Hour
)

// Faded returns the present weight of a state saved at some time, from 1 down.
func Faded(learned, now time.Time) float64 {
	return math.Exp2(-float64(max(0, now.Sub(learned))) / float64(restoredHalf))
}

// Counts returns what l has observed.
func (l *OutputLength) Counts() LengthCounts {
	n := lengthBuckets
	s := &l.seen
	for n > 0 && s.ended[n-1]+s.beyond[n-1] < 1e-3 {
		n--
	}
	round := func(xs []float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = math.Round(xs[i]*1e3) / 1e3
		}
		return out
	}
	return LengthCounts{round(s.ended[:]), round(s.tokens[:]), round(s.beyond[:]), l.events}
}

// Restore lets l, which has observed nothing yet, begin with saved counts. The saved counts weigh as at most
// restoredAnswers answers, and as fewer answers at a low weight believed (0..1). Impossible values are
// ignored. Restore reports whether it used any count.
func (l *OutputLength) Restore(c LengthCounts, believed float64) bool {
	n := len(c.Ended)
	if l.events > 0 || !(believed > 0) || n == 0 || n > lengthBuckets ||
		len(c.Tokens) != n || len(c.Beyond) != n {
		return false
	}
	most := 0.0
	for i := range n {
		if !sound(c.Ended[i]) || !sound(c.Beyond[i]) || !sound(c.Tokens[i]) {
			return false
		}
		most = max(most, c.Ended[i]+c.Beyond[i])
	}
	weight := min(1, restoredAnswers/most) * min(believed, 1)
	if !(most*weight >= leastRestored) {
		return false
	}
	s := &l.seen
	for i := range n {
		s.ended[i], s.beyond[i] = c.Ended[i]*weight, c.Beyond[i]*weight
		// The mean length must lie within the bucket.
		least, longest := max(1, bucketStart(i)), min(bucketStart(i+1), lengthMax)
		s.tokens[i] = min(max(c.Tokens[i]*weight, s.ended[i]*least), s.ended[i]*max(least, longest))
	}
	s.news = true
	l.events = max(1, c.Events)
	return true
}

// sound reports whether x can be a count.
func sound(x float64) bool { return x >= 0 && x <= 1e12 }

// FitState is what a [DecayingFit] has measured.
type FitState struct {
	At      time.Time  `json:"at"`      // of the newest sample
	Factors [3]float64 `json:"factors"` // of the profile
	Told    [3]bool    `json:"told"`    // some sample had a real share of the factor
}

// State returns what m has measured, and false if the samples are too few.
func (m *DecayingFit) State() (s FitState, known bool) {
	if !m.Known() || m.learned.IsZero() {
		return s, false
	}
	return FitState{m.learned, m.measured, m.told}, true
}

// Restore lets m, which has measured nothing yet, begin with a saved state. The older the state, the nearer
// m is to the profile. The first few samples may move m as far as on an unknown engine.
func (m *DecayingFit) Restore(s FitState, now time.Time) bool {
	if m.seen > 0 || !slices.Contains(s.Told[:], true) {
		return false
	}
	for _, f := range s.Factors {
		if !(f >= 1/factorCap && f <= factorCap) {
			return false
		}
	}
	believed := Faded(s.At, now)
	for i, f := range s.Factors {
		m.factor[i] = math.Pow(f, believed)
	}
	m.told = s.Told
	m.seen, m.spread = fitTrusted, 1
	m.reset()
	m.refresh(now)
	return true
}
