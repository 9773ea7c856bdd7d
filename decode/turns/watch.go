package turns

import (
	"sync"
	"sync/atomic"
	"time"
)

// Pauses are the two longest times without a token on any stream of a replica while it had a piece.
// The zero value means that the pauses are unknown.
type Pauses struct {
	Longest, Second time.Duration
}

// Add takes in a pause.
func (p *Pauses) Add(pause time.Duration) {
	p.Second = max(p.Second, min(pause, p.Longest))
	p.Longest = max(p.Longest, pause)
}

// Alike returns the second-longest pause as a share of the longest; false if the pauses are unknown.
func (p Pauses) Alike() (share float64, known bool) {
	if p.Longest <= 0 {
		return 0, false
	}
	return p.Second.Seconds() / p.Longest.Seconds(), true
}

// Streams is what the streams of one replica get while it has a piece. The zero Streams has none. Safe for
// concurrent use.
type Streams struct {
	streams atomic.Int64 // under way
	pieces  atomic.Int64 // that are watched

	mu     sync.Mutex // guards what follows
	begun  int        // pieces so far
	got    bool       // something since the newest began
	last   time.Time  // when that was, or when it began
	pauses Pauses     // since then
}

// Stream is one stream. The zero Stream has not begun.
type Stream struct{ stage atomic.Int32 }

// Stages of a stream.
const (
	notStreaming = iota
	streaming
	streamed
)

// Got notes that x has brought bytes. Any reader of x may call it, at every read.
func (b *Streams) Got(x *Stream, now time.Time) {
	if x.stage.CompareAndSwap(notStreaming, streaming) {
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

// End takes x out of the streams that are counted.
func (b *Streams) End(x *Stream) {
	if x.stage.Swap(streamed) == streaming {
		b.streams.Add(-1)
	}
}

// Underway returns how many streams have begun and not ended.
func (b *Streams) Underway() int64 { return b.streams.Load() }

// Watch is a look at what the streams of a replica get while it has a piece.
type Watch struct {
	beside *Streams
	number int  // of the piece
	alone  bool // when it began
}

// Watch begins to look at what the streams get, as a piece is sent. Each Watch is ended once.
func (b *Streams) Watch(now time.Time) Watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	b.got, b.last = false, now
	b.pauses = Pauses{}
	return Watch{b, b.begun, b.pieces.Add(1) == 1 && b.streams.Load() > 0}
}

// End returns the pauses up to now, when the answer of the piece has come. The pauses are zero if they are
// unknown: no stream brought a token, or another piece was watched at the same time.
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
