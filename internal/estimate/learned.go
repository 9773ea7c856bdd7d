package estimate

import (
	"math"
	"slices"
	"time"
)

// This file is what was learned as it outlives a process: enough to begin with, and to be overruled soon.

// LengthCounts is what an [OutputLength] has seen itself. Buckets at the end of which nothing is known are
// left out.
type LengthCounts struct {
	Ended  []float64 `json:"ended,omitempty"`
	Tokens []float64 `json:"tokens,omitempty"`
	Beyond []float64 `json:"beyond,omitempty"`
	Events uint64    `json:"events,omitzero"` // as many as those above it: it is all that they have seen
}

const (
	restoredAnswers = 50  // are what those of before count for at most
	leastRestored   = 0.5 // of an answer: what counts for less is left out
	// In restoredHalf what was learned before is believed half as much: traffic of last night says little of
	// this morning's.
	restoredHalf = 6 * time.Hour
)

// Faded returns how much of what was learned at some time is still believed now, from 1 down.
func Faded(learned, now time.Time) float64 {
	return math.Exp2(-float64(max(0, now.Sub(learned))) / float64(restoredHalf))
}

// Counts returns what l has seen.
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

// Restore lets l, which has seen nothing yet, begin with what another has seen, as some answers at most, and
// fewer where little of it is believed any more (0..1). What cannot be is left out; it reports whether
// anything was taken.
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
		// A bucket's answers are as long as answers of it can be.
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
	Told    [3]bool    `json:"told"`    // something was measured that could tell
}

// State returns what m has measured; false where that is too little.
func (m *DecayingFit) State() (s FitState, known bool) {
	if !m.Known() || m.learned.IsZero() {
		return s, false
	}
	return FitState{m.learned, m.measured, m.told}, true
}

// Restore lets m, which has measured nothing yet, begin with what another has: the older that is, the nearer
// to the profile. The first few samples may move it as far as those of an engine of which nothing is known.
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
