// Package planner chooses the pair of replicas for a request, or one decode replica alone, and books both in
// one step.
//
// The [Planner] asks both pools for candidates, chooses and books under its lock. Its parts do the rest:
//
//	question    the request, as the pools are asked about it
//	pairs       which replicas work together, and the learned speed of the link of each pair
//	comparison  the candidates, the table of costs, the chosen plan and the next best plans
//	ejections   what failures cost, and what a choice leaves out because of failures
//	ruling      the choice of a prefill replica by a rule instead of costs
//	refusal     the reasons why a request has no plan, or why a replica takes no part
//	flights     the transfers under way, which teach the links
//
// The result is a [Booking]. It holds both leases and the [Decision], and counts success and failure.
package planner

import (
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// Request is what the planner has to know of one prompt. It is not changed by the planner; the keys are kept
// until the booking ends, so the caller must not change them.
type Request struct {
	ID          string
	Model       string // as the client named it; candidates serve it
	Tokens      int    // prompt tokens, at least 1
	Exact       bool   // false: Tokens is an estimate, and never a reason to refuse a replica or the request
	PrefillKeys []kv.Key
	// Keys of the full blocks by each pool's chain, or of chunks of text where Chunk says so; nil when neither
	// is known.
	DecodeKeys                []kv.Key
	PrefillBlock, DecodeBlock int // tokens of a block, where the keys are of blocks
	// Tokens of a chunk of text by estimate, where the keys are of text; 0 where they are of blocks.
	Chunk        float64
	MaxTokens    int            // client's limit of new tokens, 0 none
	Class        estimate.Class // further hints at the answer's length
	Sequences    int            // answers to one prompt; below 1 counts as 1
	Goals        scoring.Goals  // of its class; zero: none
	Waited       time.Duration  // since it came
	FirstBy      time.Duration  // since it came; with a later predicted first token it is refused; 0: never
	Begun        bool           // part of a request that has begun: never refused as too late
	Quiet        bool           // the answer is not streamed: nobody sees its first token before its last
	MostAhead    time.Duration  // of others' work before its prompt, and before room; 0: any
	SplitOK      bool           // false: only Local plans
	LocalOK      bool           // false: only Split plans
	Pieces       bool           // its prompt may be sent in pieces to a decode replica that computes it
	Pulls        bool           // the leg that computes the prompt may ask for blocks of another engine
	PullsWhole   bool           // ... also if this leg is the request itself; else only a prefill leg or a piece
	Fixed        bool           // its prefill leg names the decode replica: no other may take its place
	StoreUnit    int            // tokens of the smallest part in the store that all engines share; 0: no store
	AvoidPrefill []replica.ID
	AvoidDecode  []replica.ID // replicas that failed this request already
	AvoidPairs   []Pairing    // pairs that failed it, not by one side's fault alone
}

// Pairing names a prefill and a decode replica together.
type Pairing = outlier.Pair

// Mode says where the prompt is prefilled.
type Mode uint8

// Split prefills on a prefill replica and moves the KV blocks; Local prefills on the decode replica itself.
const (
	Split Mode = iota
	Local
)

func (m Mode) String() string {
	if m == Local {
		return "local"
	}
	return "split"
}

// MarshalText writes the name of m.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Booking is a plan that has been booked on both replicas. The holder must end it with [Booking.Release] or
// [Booking.Finish]. It belongs to the request's goroutine; only Release may be called from other goroutines.
type Booking struct {
	Mode           Mode
	Prefill        replica.Replica // zero for Local
	Decode         replica.Replica
	PrefillLease   *prefill.Lease // nil for Local
	DecodeLease    *decode.Lease
	Decision       *Decision // must not be changed; a Rebind that moves puts a new one here
	MatchedPrefill int       // tokens that the prefill replica is believed to hold
	MatchedDecode  int       // tokens that the decode replica is believed to hold

	planner   *Planner // that has booked it
	outcome   outcome
	predicted prediction
	transfer  expectedTransfer
}

// Stored returns how many tokens the shared store has, if b therefore has no prefill leg; else 0.
func (b *Booking) Stored() int { return b.Decision.Stored }

// Pull is what the first leg of an attempt pulls from another engine. The zero Pull is nothing.
type Pull struct {
	From   replica.ID
	Host   string // of the engine's P2P tier
	Port   int
	Tokens int // of the prompt, from its beginning
}

// Pull returns what the first leg of b pulls.
func (b *Booking) Pull() Pull { return b.transfer.pull }

// prediction is when a booking should have come how far, in seconds.
type prediction struct {
	within float64 // from the plan until the prompt should be prefilled
	first  float64 // from sending the decode leg until its expected first token
	cost   float64 // see [Booking.Cost]
	// Tokens of the prompt by estimate; 0 if the token ids were known. Only the booking sets it.
	estimated int
	counted   bool // an engine has counted the prompt; guarded by the planner's lock
}

// expectedTransfer is the expectation for the transfer of a Split. A Local has only a pull.
type expectedTransfer struct {
	missing    int  // tokens of the blocks that it moves
	knownMatch bool // by its events, what the decode replica holds
	sure       bool // that it moves just that, as of when it was asked for
	pull       Pull // of the replica that computes the prompt

	// The planner's lock guards the following.
	kind    replica.Link // of the path, as booked
	awaited bool         // it has not come
	flight  *flight      // while it is under way
}

// Sure reports whether no fact suggests that the transfer moves other blocks than the ones believed to be
// missing on the decode replica. It is set by [Planner.Rebind].
func (b *Booking) Sure() bool { return b.transfer.sure }

// PrefilledWithin is how long after the plan the prompt should be prefilled.
func (b *Booking) PrefilledWithin() time.Duration { return seconds(b.predicted.within) }

// Finish notes how the answer ended and ends both leases. ttft and total count from the same moment. They
// are equal where the time between the first token and the last is unknown. outTokens is the sum over all
// sequences.
func (b *Booking) Finish(outTokens int, ttft, total time.Duration, now time.Time) {
	b.DecodeLease.Finish(outTokens, total-ttft, now)
	b.Release(now)
}

// Release ends both leases. A second call does nothing. Safe for concurrent use.
func (b *Booking) Release(now time.Time) {
	if b == nil {
		return
	}
	b.planner.ended(b, now)
	b.PrefillLease.Release(now)
	b.DecodeLease.Release(now)
	b.outcome.prefill.End()
	b.outcome.decode.End()
}

// FirstWithin returns how long the generating leg should take to its first token, as predicted when it was
// chosen.
func (b *Booking) FirstWithin() time.Duration { return seconds(b.predicted.first) }

// Cost is what the request takes: seconds of the whole prefill pool, and seconds of all KV blocks of the
// decode pool. Both are by prediction, as of the plan.
func (b *Booking) Cost() float64 { return b.predicted.cost }
