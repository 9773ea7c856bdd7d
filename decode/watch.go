package decode

import (
	"sync"
	"sync/atomic"
	"time"
)

// Pauses are the two longest times in which no stream of a replica got anything, while it had a piece.
// Nobody can tell them by the zero value.
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
