// Package scoring is the arithmetic of routing: what a request would cost on a replica, or on a pair of them,
// in seconds that may be added.
package scoring

import (
	"strconv"
	"time"
)

// Units says what the terms of a decision are counted in.
type Units uint8

// InSeconds counts every term in predicted seconds, see [Seconds]. InRaw is the literal formula alpha*d -
// beta*w - gamma*u in blocks, waiting requests and the share of KV in use, see [Raw]: for people who tuned
// such weights elsewhere, and to compare with.
const (
	InSeconds Units = iota
	InRaw
)

func (u Units) String() string {
	switch u {
	case InSeconds:
		return "seconds"
	case InRaw:
		return "raw"
	}
	return "units(" + strconv.Itoa(int(u)) + ")"
}

// MarshalText writes the name of u.
func (u Units) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Alpha is the weight of prefill work. Auto takes it from the replica's utilisation, see [Alpha.At];
// otherwise Value holds.
type Alpha struct {
	Auto  bool
	Value float64
}

// alphaCap bounds the automatic alpha: at the cap a second of work counts as twenty.
const alphaCap = 20

// At returns the weight on a replica that works rho of its time, 0..1. A second of work put on a queue delays
// those behind it by about rho/(1-rho) seconds, so that its whole cost is 1/(1-rho).
func (a Alpha) At(rho float64) float64 {
	if !a.Auto {
		return a.Value
	}
	return utilizationMarkup(rho)
}

// local returns the weight on a decode replica, whose own markups stand in the place of the automatic alpha:
// 1 for that.
func (a Alpha) local() float64 {
	if a.Auto {
		return 1
	}
	return a.Value
}

// utilizationMarkup is 1/(1-share), within 1..alphaCap.
func utilizationMarkup(share float64) float64 {
	if !(share > 0) {
		return 1
	}
	if share >= 1-1.0/alphaCap {
		return alphaCap
	}
	return 1 / (1 - share)
}

// Weights are the exchange rates between the terms; 1 is face value.
type Weights struct {
	Units         Units
	Alpha         Alpha
	Beta          float64 // of the wait behind queued work
	Gamma         float64 // of KV pressure
	DecodePenalty float64 // of the slow-down of requests that decode there already

	// How good a prefix match must be to draw a request to a replica: one of the two must be reached. Traffic
	// shares short heads by nature, and following those sends all of it to one replica. Both zero: every
	// match is followed.
	AffinityShare float64       // of the prompt, 0..1
	AffinitySaved time.Duration // of prefill
}

// Model returns the model that w is the weights of. A transfer takes setup whatever its size, and moves so
// many bytes a token.
func (w Weights) Model(setup time.Duration, bytesPerToken float64) Model {
	if w.Units == InRaw {
		return &Raw{w}
	}
	return &Seconds{Weights: w, Setup: setup.Seconds(), BytesPerToken: bytesPerToken}
}
