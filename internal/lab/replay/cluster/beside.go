package cluster

import "time"

// beside records, from the router's view, when the streams of an engine get tokens while the engine computes
// a piece.
type beside struct {
	tokens       [64]time.Duration // arrival times of the newest tokens, by number
	n            int
	begun, ended int // pieces
	pauses       []time.Duration
}

// got records that the streams got tokens.
func (b *beside) got(at time.Duration) {
	b.tokens[b.n%len(b.tokens)] = at
	b.n++
}

// watch observes the streams during one piece.
type watch struct {
	since        time.Duration
	begun, ended int // counts of pieces when this one was sent, this one included
	alone        bool
}

// watch begins when a piece is sent.
func (b *beside) watch(now time.Duration) watch {
	alone := b.begun == b.ended
	b.begun++
	return watch{now, b.begun, b.ended, alone}
}

// end returns the pauses of the streams up to now, when the answer of the piece comes or fails; none if they
// are unknown. They stay valid until the next piece ends.
func (b *beside) end(w watch, now time.Duration) []time.Duration {
	alone := w.alone && b.begun == w.begun && b.ended == w.ended
	b.ended++
	b.pauses = b.pauses[:0]
	if !alone {
		return nil
	}
	last := w.since
	for i := max(0, b.n-len(b.tokens)); i < b.n; i++ {
		at := b.tokens[i%len(b.tokens)]
		if at <= w.since || at > now {
			continue
		}
		b.pauses = append(b.pauses, at-last)
		last = at
	}
	if len(b.pauses) == 0 {
		return nil
	}
	b.pauses = append(b.pauses, now-last)
	return b.pauses
}
