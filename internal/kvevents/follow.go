package kvevents

import (
	"context"
	"time"
)

// Options tune a [Follower]; the zero value is right for production.
type Options struct {
	Context       *Context      // ZMQ context to share between followers; nil: one of its own
	ReplayTimeout time.Duration // longest silence within a replay, default 5 s
	Audit         time.Duration // mean time between checks of a quiet stream against the replay buffer, default 30 s; negative: none
}

// Follower follows one engine's stream. Make one with [NewFollower], then call Run once.
type Follower struct {
	src  Source
	sink Sink
	opt  Options
}

// NewFollower returns a follower of src that tells sink. Nothing is dialled before Run.
func NewFollower(src Source, sink Sink, o Options) *Follower {
	return &Follower{src: src, sink: sink, opt: o}
}

// Run follows the stream until ctx ends and returns nil then. An address that can never be dialled is an error at once.
func (f *Follower) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Stats returns counters of the stream. Safe from any goroutine.
func (f *Follower) Stats() Stats { return Stats{} }

// Stats is what a [Follower] has seen since it was made.
type Stats struct {
	State        State
	Known        bool          // a batch was applied since the last Forget
	Seq          uint64        // of the newest batch applied, if Known
	Batches      uint64        // applied
	Bytes        uint64        // of payloads applied
	Events       uint64        // in batches applied
	Unknown      uint64        // events of unknown kinds, skipped
	DecodeErrors uint64        // batches that could not be read in whole or part
	Duplicates   uint64        // batches seen before, dropped
	Gaps         uint64        // times the sequence jumped ahead
	Lost         uint64        // gaps that could not be filled
	Replays      uint64        // replays asked for
	Timeouts     uint64        // replays that fell silent before their end
	Restarts     uint64        // engine restarts noticed
	Reconnects   uint64        // connections made after the first
	WrongRank    uint64        // batches that name another rank than the Source
	Lag          time.Duration // from the engine's time stamp to our receipt, newest live batch; includes clock skew
	LastAt       time.Time     // engine's time stamp of the newest batch applied
}
