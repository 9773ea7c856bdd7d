package decode

import "time"

// prefixSeen is the cached part of a prefix, by events, at one time.
type prefixSeen struct {
	base, tokens int
	known        bool
}

// seePrefix looks up how much of l's prefix is cached, by events. The one goroutine that sends the pieces
// calls it, without the pool's lock.
func (l *Lease) seePrefix() prefixSeen {
	h := prefixSeen{base: l.pieces.Prefix.Base}
	if h.base > 0 {
		h.tokens, h.known = l.pool.Heard(&l.member.Member, l.entry.Named, h.base)
	}
	return h
}

// updatePrefix takes in how much of l's prefix is cached. A prompt that waits for its turn may lose its
// prefix to others. Then a piece up to an evicted part would compute that part, too, and hold up every
// stream. Blocks that events have not announced yet are not evicted: the blocks are predicted to come, or
// were computed just now. Without events nothing counts as evicted. A turn that has moved may be behind the
// turn of a prompt that asked before.
func (l *Lease) updatePrefix(h prefixSeen, now time.Time) {
	x := &l.pieces.Prefix
	if !h.known || h.base != x.Base || !l.entry.Missing() || l.member.Blind() {
		return
	}
	if x.Heard(h.tokens) {
		l.pool.progress(l, now)
		l.member.account.Changed()
		l.member.local.turns.Moved()
	}
}

// progress records the time that is left of l's prompt.
func (p *Pool) progress(l *Lease, now time.Time) {
	x, left := &l.pieces, p.leftOf(l, now)
	l.member.local.turns.Progress(x, left, p.turnOf(x.Booked, left), now)
}
