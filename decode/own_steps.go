package decode

import (
	"sync/atomic"
	"time"
)

// An engine cuts long prompts itself, into what one of its steps computes (--max-num-batched-tokens). Where a
// piece is more than that, pieces bring the streams there nothing, and cost the prompts a decode step between
// each two. How large its steps are no metric of vLLM 0.32 tells: iteration_tokens_total counts a whole
// prompt in the step of its first token (v1/metrics/stats.py). It shows in what the streams beside a piece
// get while the engine has it: a token for each of its steps. Prompts still take turns there, as a whole.

const (
	// finely is the steps from which on an engine takes several for a piece, on average over finelyAfter pieces:
	// one that it computes in one step takes two, with the one that was under way when it came.
	finely      = 2.3
	finelyAfter = 4
	// finelyFor is how long that is believed. Then pieces are tried again.
	finelyFor = 10 * time.Minute
	// heldBack is how many times as long as predicted takes what has waited for something else.
	heldBack = 1.5
)

// ownSteps is what was seen of the steps that an engine takes for a piece. Guarded by the lock of the pool.
type ownSteps struct {
	mean  float64
	n     int
	until time.Time // from when pieces are tried again
}

// learn takes in how many steps a piece took.
func (o *ownSteps) learn(steps float64, now time.Time) {
	if !o.until.IsZero() && now.After(o.until) {
		*o = ownSteps{}
	}
	o.n = min(o.n+1, 2*finelyAfter)
	o.mean += (steps - o.mean) / float64(o.n)
	if o.n >= finelyAfter && o.mean >= finely && o.until.IsZero() {
		o.until = now.Add(finelyFor)
	}
}

// fine reports whether the engine cuts prompts so finely itself that pieces are of no use.
func (o *ownSteps) fine(now time.Time) bool { return now.Before(o.until) }

// beside counts what the streams of one replica get. Any goroutine may change it.
type beside struct {
	events, streams atomic.Int64
}

// Stages of a lease in what its replica's streams get.
const (
	notStreaming = iota
	streaming
	streamed
)

// Streamed tells that l's stream brought so many events. It may be called without a lock held, at every read,
// by whoever reads the stream. On nil it does nothing.
func (l *Lease) Streamed(events int) {
	if l == nil || l.sequences > 1 { // several sequences bring several events a step
		return
	}
	if l.stream.stage.CompareAndSwap(notStreaming, streaming) {
		l.member.beside.streams.Add(1)
	}
	l.member.beside.events.Add(int64(events))
}

// endStream takes l's stream out of those that are counted.
func (l *Lease) endStream() {
	if l.stream.stage.Swap(streamed) == streaming {
		l.member.beside.streams.Add(-1)
	}
}

// Beside is what the streams of a replica had got at one moment.
type Beside struct {
	Events, Streams int64
}

// Beside returns what the streams of l's replica have got. Safe for concurrent use.
func (l *Lease) Beside() Beside {
	b := &l.member.beside
	return Beside{b.events.Load(), b.streams.Load()}
}

// Since returns how many steps of the engine lie between before and b, by what its streams got; 0 where there
// was none.
func (b Beside) Since(before Beside) float64 {
	if b.Streams == 0 || before.Streams == 0 {
		return 0
	}
	return float64(2*(b.Events-before.Events)) / float64(b.Streams+before.Streams)
}
