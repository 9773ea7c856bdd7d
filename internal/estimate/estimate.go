// Package estimate learns quantities from measurements that say more or less: a sample is two bounds, and
// what is believed moves only as far as it contradicts them. It reads no clock and is not safe for concurrent
// use.
package estimate

import (
	"math"
	"time"
)

// Sample is one measurement of a quantity above zero: the quantity is between Low and High. Low of 0 says
// that it may be as small as anything, High of +Inf that it may be as large.
//
// Most measurements are of a sum, as the time from a request to its first token is of a transfer and of what
// the engine did besides. Whoever measures says what the rest may well have been, least and most.
type Sample struct{ Low, High float64 }

// Estimate is what is believed of a quantity.
type Estimate struct {
	Value float64
	// Error is the factor by which the quantity may well be larger or smaller, at least 1.
	Error   float64
	Age     time.Duration // since the newest sample; 0 where there is none
	Samples int
}

// How far a sample that contradicts an estimate moves it, in the logarithm. Before the first sample there is
// a guess, which counts for little. Three samples that say the same leave an eighth of a surprise, so that a
// hundredfold error is within a factor of two, and one stray sample is taken back by the next two.
const (
	firstGain = 0.9
	nextGain  = 0.5
)

// guessed is the error of what nobody has measured.
const guessed = 10

// value is a quantity, learned. The zero value knows nothing.
type value struct {
	log     float64 // of the quantity
	spread  float64 // of log: how far samples of late were from saying it exactly
	samples int
	at      time.Time // of the newest sample
}

// learn takes in a sample; before the first the quantity is taken to be prior. It reports whether the sample
// contradicted what was believed.
func (v *value) learn(prior float64, s Sample, now time.Time) (moved bool) {
	gain := nextGain
	if v.samples == 0 {
		v.log, v.spread = math.Log(prior), math.Log(guessed)
		gain = firstGain
	}
	low, high := math.Log(max(s.Low, 0)), math.Log(s.High)
	off := 0.0
	switch {
	case v.log < low:
		off = low - v.log
	case v.log > high:
		off = high - v.log
	}
	v.log += gain * off
	told := min(max(v.log-low, high-v.log, math.Abs(off)), math.Log(guessed))
	v.spread += gain * (told - v.spread)
	v.samples++
	v.at = now
	return off != 0
}

// estimate returns what is believed.
func (v *value) estimate(now time.Time) Estimate {
	return Estimate{math.Exp(v.log), math.Exp(v.spread), now.Sub(v.at), v.samples}
}
