package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file has what a lease is told and what it answers.

// Schedule holds the expected times of a booked request's steps. The zero Schedule is that of a request
// whose prefill may begin at once, on another replica.
type Schedule struct {
	Local   bool      // the decode replica also prefills: SendAt, LandAt, Transfer and Outbox are unused
	AdmitAt time.Time // when its prefill should begin; its lease is reserved until then
	SendAt  time.Time // when its prefill should end and the request is sent to the decode replica
	LandAt  time.Time // when its KV blocks should have arrived

	Transfer time.Duration   // predicted duration of the transfer
	Outbox   *replica.Outbox // of the sending replica, nil for none

	// UnseenArrival is the time from sending the request until its prompt should be there, if the first token
	// cannot be observed; else 0.
	UnseenArrival time.Duration
}

// Arrival is the time to the first token of a request, with the engine's work meanwhile.
type Arrival struct {
	Took time.Duration // since the request was sent; 0 if the first token cannot be observed, or came before
	Held float64       // seconds in which its replica computed prompts
	// The request waited for room, for a turn or behind prompts of its replica, for an unknown time.
	Waited bool
}

// Next is the next part of a prompt to send.
type Next struct {
	Upto  int           // send so many leading tokens; all tokens for the request itself; 0: nothing yet
	Ask   time.Duration // if nothing is sent: when to ask again, unless woken before
	Whole string        // why the request itself is sent although little of its prompt was sent
}

// Pauses are the two longest times without a token on any stream of a replica while it had a piece.
type Pauses = turns.Pauses

// Progress is how far a stream has come.
type Progress = estimate.Progress

// ProgressEvery is the least interval between two useful reports of a stream's progress.
const ProgressEvery = estimate.ProgressEvery
