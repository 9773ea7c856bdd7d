package cluster

import "time"

// Pauses are the two longest times in which no stream of an engine got anything, while it had a piece. They
// are zero where nobody can tell.
type Pauses struct {
	Longest, Second time.Duration
}

// beside is what the streams of an engine get while it has a piece, as its router sees it.
type beside struct {
	tokens       [64]time.Duration // when they got the newest, by number
	n            int
	begun, ended int // pieces
}

// got takes in that the streams got tokens.
func (b *beside) got(at time.Duration) {
	b.tokens[b.n%len(b.tokens)] = at
	b.n++
}

// watch is a look at what streams get beside one piece.
type watch struct {
	since        time.Duration
	begun, ended int // pieces when it was sent, itself included
	alone        bool
}

// watch begins to look, as a piece is sent.
func (b *beside) watch(now time.Duration) watch {
	alone := b.begun == b.ended
	b.begun++
	return watch{now, b.begun, b.ended, alone}
}

// end returns the pauses up to now, as the answer of the piece comes or fails.
func (b *beside) end(w watch, now time.Duration) (p Pauses) {
	alone := w.alone && b.begun == w.begun && b.ended == w.ended
	b.ended++
	if !alone {
		return Pauses{}
	}
	last := w.since
	for i := max(0, b.n-len(b.tokens)); i < b.n; i++ {
		at := b.tokens[i%len(b.tokens)]
		if at <= w.since || at > now {
			continue
		}
		p.add(at - last)
		last = at
	}
	if last == w.since {
		return Pauses{}
	}
	p.add(now - last)
	return p
}

// add takes in a pause.
func (p *Pauses) add(pause time.Duration) {
	p.Second = max(p.Second, min(pause, p.Longest))
	p.Longest = max(p.Longest, pause)
}
