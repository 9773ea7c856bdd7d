package planner

import (
	"math/rand/v2"
	"time"

	"tandem/decode"
	"tandem/internal/replica"
	"tandem/prefill"
)

// Planner chooses and books. Safe for concurrent use.
type Planner struct{}

// New returns a planner over the two pools. rnd breaks ties; the planner alone uses it from now on.
func New(p *prefill.Pool, d *decode.Pool, rnd *rand.Rand) *Planner { return &Planner{} }

// SetPolicy makes p hold for every plan from now on.
func (pl *Planner) SetPolicy(p Policy) {}

// Plan chooses the best plan for req and books it on both pools. The error is *[NoRoom] or *[NoReplica].
func (pl *Planner) Plan(req *Request, now time.Time) (*Booking, error) {
	return nil, &NoReplica{Pool: "decode"}
}

// Explain is Plan without booking, with every exclusion named.
func (pl *Planner) Explain(req *Request, now time.Time) (*Decision, error) {
	return nil, &NoReplica{Pool: "decode"}
}

// PrefillDone tells that prefill answered took after it was sent, with cached tokens by the engine's count (-1 unknown). It ends the prefill lease.
func (pl *Planner) PrefillDone(b *Booking, cached int, took time.Duration, now time.Time) {}

// Rebind looks at the decode choice again, just before the decode leg is sent, and makes its lease hard.
func (pl *Planner) Rebind(b *Booking, req *Request, now time.Time) (moved bool, err error) {
	return false, nil
}

// FirstToken tells that the first token of the decode leg arrived: it teaches the speed of the pair's link.
func (pl *Planner) FirstToken(b *Booking, now time.Time) {}

// Finish tells how the answer ended and ends both leases. ttft and total count from the moment the request was booked.
func (pl *Planner) Finish(b *Booking, promptTokens, outTokens int, ttft, total time.Duration, now time.Time) {
}

// BlockPair keeps the pair from being chosen until the given time.
func (pl *Planner) BlockPair(p, d replica.ID, until time.Time) {}
