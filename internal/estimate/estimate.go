// Package estimate holds everything that the router learns: how fast replicas are, how long answers are,
// what links carry, and what engines do at most. An observer passes a [Sample] in. A reader gets an
// [Estimate], or plain numbers to price a plan with. The package knows no leases and no members, and reads
// no clock. It is not safe for concurrent use: a pool or the planner holds its estimates under its own
// mutex.
//
// A Sample has one form for all observations: what was measured, when, and between what bounds the quantity
// is. These observations exist today:
//
//	Of           unit        what is observed, and by whom
//	PromptTime   seconds     The time that a replica took for the prompts that it computed one after the
//	                         other. Both pools see it at first tokens and at the answers of pieces.
//	StepTime     seconds     The mean decode step of an answer. The decode pool sees it when the answer ends.
//	WindowTime   seconds     The mean decode step of part of a stream that is under way. The decode pool sees
//	                         it when the stream is read.
//	LinkTime     seconds     The time that a byte takes on a link. The planner sees bounds at the first token
//	             a byte      after a transfer, in the counters of an engine, and when a transfer is late.
//	SetupTime    seconds     What a transfer takes whatever its size. The planner sees it at first tokens.
//	AnswerTokens tokens      The length of an answer. The decode pool sees a lower bound at each load report,
//	                         and both bounds at the end. An answer that a limit cut has no upper bound.
//	PauseShare   0..1        The second-longest pause of streams beside a piece, as a share of the longest. It
//	                         tells whether an engine cuts prompts itself. Readers of streams see it.
//
// How many sequences an engine runs is learned from load reports. A report is no measurement of one
// quantity, and decode keeps that rule to itself.
//
// To add an observation, add a row above, a [Quantity], and a case in the estimator that takes it:
// [Pool.Learn] for speeds, [Kind.Learn] for links, [Lengths.Learn] for answers. The observer fills in Of,
// At and Range, and of the other fields those that it knows. A new observation should need no other field:
// where the rest of a measurement is not known, the observer makes the bounds wider.
package estimate

import (
	"math"
	"time"
)

// Quantity says what a sample measures. The table in the package comment has their units.
type Quantity uint8

// All quantities that are observed.
const (
	PromptTime Quantity = iota
	StepTime
	WindowTime
	LinkTime
	SetupTime
	AnswerTokens
	PauseShare
)

// Range is between what bounds a quantity is. Low of 0 says that it may be as small as anything, High of
// +Inf that it may be as large.
type Range struct{ Low, High float64 }

// Exactly returns the bounds of a quantity that was measured without doubt.
func Exactly(x float64) Range { return Range{x, x} }

// Sample is one observation of a quantity above zero.
//
// Most measurements are of a sum. The time from a request to its first token contains a transfer and what
// the engine did besides. The observer says what the rest may well have been, least and most.
type Sample struct {
	Of    Quantity
	Since time.Time // when the observed time began; zero where that does not matter
	At    time.Time // when the observation was complete
	Range
	Work      Work    // what the time was spent on; zero where the quantity is no time of work
	Load      Load    // what the replica decoded in each step meanwhile; zero where the quantity is no step
	Beside    float64 // seconds of it that should have gone to other work in the same steps
	Elsewhere float64 // share of the time that the replica spent on work of other routers, 0..1
}

// Work is an amount of work, as the seconds that the profile of an unknown engine puts it at: a part for
// each coefficient of a speed.
type Work [3]float64

// Took returns the sample of work that took so many seconds, without doubt.
func Took(of Quantity, work Work, seconds float64, at time.Time) Sample {
	return Sample{Of: of, At: at, Range: Exactly(seconds), Work: work}
}

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
func (v *value) learn(prior float64, s Range, now time.Time) (moved bool) {
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
