// Package scoring is the arithmetic of routing: the predicted cost of a request on a replica, or on a pair
// of replicas, in seconds that can be added.
package scoring

import (
	"strconv"
	"time"
)

// Units says in which unit the terms of a decision are counted.
type Units uint8

// InSeconds counts every term in predicted seconds, see [Seconds]. InRaw is the literal formula alpha*d -
// beta*w - gamma*u in blocks, waiting requests and the share of KV in use, see [Raw]. It is for weights that
// were tuned elsewhere, and for comparisons.
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

// Alpha is the weight of prefill work. With Auto it follows the queue on the replica, see [Queue.Crowding];
// otherwise Value holds.
type Alpha struct {
	Auto  bool
	Value float64
}

// At returns the weight on a replica with that queue.
func (a Alpha) At(q Queue) float64 {
	if !a.Auto {
		return a.Value
	}
	return q.Crowding()
}

// raw returns the weight in raw units, which know no queue: 1 for auto.
func (a Alpha) raw() float64 {
	if a.Auto {
		return 1
	}
	return a.Value
}

// Weights are the exchange rates between the terms; 1 is face value.
type Weights struct {
	Units         Units
	Alpha         Alpha
	Beta          float64 // of the wait behind queued work
	Gamma         float64 // of KV pressure
	DecodePenalty float64 // of the slow-down of requests that decode there already, by [Decode.Usual]
}

// Model returns the model that w is the weights of. A transfer takes setup whatever its size, and moves so
// many bytes a token.
func (w Weights) Model(setup time.Duration, bytesPerToken float64) Model {
	if w.Units == InRaw {
		return &Raw{w}
	}
	return &Seconds{Weights: w, Setup: setup.Seconds(), BytesPerToken: bytesPerToken}
}
