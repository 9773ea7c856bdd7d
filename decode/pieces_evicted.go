package decode

import "time"

// prefixSeen is what events say of a prefix, at one time.
type prefixSeen struct {
	base, tokens int
	known        bool
}

// seePrefix looks up what is there of l's prefix, by events. It is called without the pool's lock, by the
// one goroutine that sends the pieces.
func (l *Lease) seePrefix() prefixSeen {
	h := prefixSeen{base: l.pieces.Prefix.Base}
	if h.base > 0 {
		h.tokens, h.known = l.pool.Heard(&l.member.Member, l.entry.Named, h.base)
	}
	return h
}

// updatePrefix takes in what of l's prefix is there. A prompt that waits for its turn may lose it to
// others, and a piece that goes to the end of what is not there any more would be as long as that, and
// hold up every stream. What events have not told of yet, since it is guessed to come or was computed
// just now, is not gone, nor is anything while they are not heard. A turn that has moved may be behind
// that of somebody who asked before.
func (l *Lease) updatePrefix(h prefixSeen, now time.Time) {
	x := &l.pieces.Prefix
	if !h.known || h.base != x.Base || !l.entry.Missing() || l.member.Blind() {
		return
	}
	if x.Heard(h.tokens) {
		l.pool.progress(l, now)
		l.member.book.Changed()
		l.member.turns.Moved()
	}
}
