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
//	AnswerTokens tokens      The length of an answer. The decode pool sees a lower bound at each load report,
//	                         and both bounds at the end. An answer that a limit cut has no upper bound.
//	PauseShare   0..1        The second-longest pause of streams beside a piece, as a share of the longest. It
//	                         tells whether an engine cuts prompts itself. Readers of streams see it.
//	ReadTime     seconds     The time to read the KV of a token back from memory below the GPU. Both pools
//	             a token     see bounds when a prompt with such a match is answered.
//
// How many sequences an engine runs is learned from load reports. A report does not measure one quantity, so
// [Sequences] takes an [Occupancy] instead of a Sample.
//
// To add an observation, add a row above, a [Quantity], and a case in the estimator that takes it:
// [Pool.Learn] for speeds, [Pool.HasRead] for lower memories, [Kind.Learn] for links, [Lengths.Learn] for
// answers. The observer fills in Of, At, Range, and each other field whose value it knows. A new observation
// should need no other field: if a part of a measurement is unknown, the observer makes the bounds wider.
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
	AnswerTokens
	PauseShare
	ReadTime
)

// Range bounds a quantity. A Low of 0 and a High of +Inf are no bounds.
type Range struct{ Low, High float64 }

// Exactly returns the bounds of a quantity that was measured without doubt.
func Exactly(x float64) Range { return Range{x, x} }

// Sample is one observation of a quantity above zero.
//
// Most measurements are of a sum. The time from a request to its first token contains a transfer and other
// work of the engine. The observer states the least and the most that the quantity can be.
type Sample struct {
	Of    Quantity
	Since time.Time // when the observed time began; zero where that does not matter
	At    time.Time // when the observation was complete
	Range
	Work      Work    // what the time was spent on; zero if the quantity is not a duration of work
	Load      Load    // what the replica decoded in each step meanwhile; zero if the quantity is no step
	Beside    float64 // predicted seconds of other work in the same steps
	Elsewhere float64 // share of the time that the replica spent on work of other routers, 0..1
}

// Work is an amount of work, in seconds of the default profile: one part for each coefficient of a speed.
type Work [3]float64

// Took returns the sample of work that took exactly so many seconds.
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

// Gains by which a contradicting sample moves an estimate, in the logarithm. The first sample replaces most
// of the guess. Three equal samples leave an eighth of a surprise: a hundredfold error shrinks to a factor
// of two. The next two samples undo one stray sample.
const (
	firstGain = 0.9
	nextGain  = 0.5
)

// guessed is the error of a quantity that was never measured.
const guessed = 10

// value is a learned quantity. The zero value knows nothing.
type value struct {
	log     float64 // of the quantity
	spread  float64 // of log: the mean distance of recent samples from an exact match
	samples int
	at      time.Time // of the newest sample
}

// learn takes in a sample. Before the first sample, the quantity is taken to be prior. learn reports whether
// the sample contradicted the estimate.
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

// estimate returns the present estimate.
func (v *value) estimate(now time.Time) Estimate {
	return Estimate{math.Exp(v.log), math.Exp(v.spread), now.Sub(v.at), v.samples}
}
