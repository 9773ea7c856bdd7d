package decode

import (
	"sync"
	"sync/atomic"
	"time"
)

// An engine cuts long prompts itself, into what one of its steps computes (--max-num-batched-tokens). Where a
// piece is more than that, pieces bring the streams there nothing, and cost the prompts a decode step between
// each two. How large its steps are no metric of vLLM 0.32 tells: iteration_tokens_total counts a whole
// prompt in the step of its first token (v1/metrics/stats.py). It shows in the pauses of the streams beside a
// piece: one long one where the engine makes one step of it, several that are alike where it makes several.
// How many steps there are tells nothing: a fast engine makes some while a piece is on its way there and
// back. Prompts still take turns at an engine that cuts them itself, as a whole.

const (
	// finely is the second-longest pause beside a piece as a share of the longest, on average over finelyAfter
	// pieces, from which on an engine takes several steps for a piece. One that takes one step shows 0.15 to 0.2
	// (a decode step beside it), several 0.35 to 1, since the last is shorter.
	finely      = 0.45
	finelyAfter = 4
	// stepBeside is the most that a decode step may be of a piece that tells: the one with a shorter piece in it
	// and the one beside it look like two of several.
	stepBeside = 0.35
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

// learn takes in how alike the two longest pauses beside a piece were.
func (o *ownSteps) learn(alike float64, now time.Time) {
	if !o.until.IsZero() && now.After(o.until) {
		*o = ownSteps{}
	}
	o.n = min(o.n+1, 2*finelyAfter)
	o.mean += (alike - o.mean) / float64(o.n)
	if o.n >= finelyAfter && o.mean >= finely && o.until.IsZero() {
		o.until = now.Add(finelyFor)
	}
}

// fine reports whether the engine cuts prompts so finely itself that pieces are of no use.
func (o *ownSteps) fine(now time.Time) bool { return now.Before(o.until) }

// Pauses are the two longest times in which no stream of a replica got anything, while it had a piece. Nobody
// can tell them by the zero value.
type Pauses struct {
	Longest, Second time.Duration
}

// Add takes in a pause.
func (p *Pauses) Add(pause time.Duration) {
	p.Second = max(p.Second, min(pause, p.Longest))
	p.Longest = max(p.Longest, pause)
}

// alike is the second-longest as a share of the longest; false where nobody can tell.
func (p Pauses) alike() (share float64, known bool) {
	if p.Longest <= 0 {
		return 0, false
	}
	return p.Second.Seconds() / p.Longest.Seconds(), true
}

// beside is what the streams of one replica get while it has a piece. Any goroutine may change it.
type beside struct {
	streams atomic.Int64 // under way
	pieces  atomic.Int64 // that are watched

	mu     sync.Mutex // guards those below
	begun  int        // pieces so far
	got    bool       // something since the newest began
	last   time.Time  // when that was, or when it began
	pauses Pauses     // since then
}

// Stages of a lease in what its replica's streams get.
const (
	notStreaming = iota
	streaming
	streamed
)

// Streamed tells that l's stream has brought something. It may be called without a lock held, at every read,
// by whoever reads the stream. On nil it does nothing.
func (l *Lease) Streamed(now time.Time) {
	if l == nil {
		return
	}
	b := &l.member.beside
	if l.stream.stage.CompareAndSwap(notStreaming, streaming) {
		b.streams.Add(1)
	}
	if b.pieces.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got = true; now.After(b.last) { // streams are read side by side
		b.pauses.Add(now.Sub(b.last))
		b.last = now
	}
}

// endStream takes l's stream out of those that are counted.
func (l *Lease) endStream() {
	if l.stream.stage.Swap(streamed) == streaming {
		l.member.beside.streams.Add(-1)
	}
}

// Watch is a look at what the streams of a replica get while it has a piece.
type Watch struct {
	beside *beside
	number int  // of the piece
	alone  bool // when it began
}

// Watch begins to look at what the streams of l's replica get, as a piece of l is sent. Safe for concurrent
// use. Each is ended once.
func (l *Lease) Watch(now time.Time) Watch {
	b := &l.member.beside
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	b.got, b.last = false, now
	b.pauses = Pauses{}
	return Watch{b, b.begun, b.pieces.Add(1) == 1 && b.streams.Load() > 0}
}

// End returns the pauses up to now, when the answer of the piece has come. They are zero where nobody can
// tell: nothing came, or another piece was watched at the same time. Safe for concurrent use.
func (w Watch) End(now time.Time) Pauses {
	b := w.beside
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pieces.Add(-1)
	if !w.alone || b.begun != w.number || !b.got {
		return Pauses{}
	}
	p := b.pauses
	p.Add(now.Sub(b.last)) // the step's tokens for the streams may come behind its answer
	return p
}
