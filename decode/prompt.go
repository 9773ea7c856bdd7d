package decode

import (
	"slices"
	"time"
)

// Speculate lets the index count the blocks of the prompt that was booked on l's replica before its events
// say so, within the given time.
func (l *Lease) Speculate(within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	guess := !l.guessed && l.state != ended
	l.guessed = true
	l.pool.members.Unlock()
	if guess {
		l.pool.Speculate(&l.member.Member, l.named, within, now)
	}
}

// Exact reports whether nothing shows that other blocks of the prompt are on l's replica now than were
// believed when it was booked, or that somebody else brings or computes more of them there at the same time.
// Only then is it known what a transfer that begins now will move.
func (l *Lease) Exact() bool {
	return l.pool.HasOnly(&l.member.Member, l.named, l.matched) && !l.others()
}

// others reports whether the replica was sent a request before which has no answer yet and whose prompt has
// the next block in common that l's lacks.
func (l *Lease) others() bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	return slices.ContainsFunc(l.member.ledger.leases, func(o *Lease) bool {
		runs := o != l && o.state >= sent && o.prompt != answered
		return runs && p.Common(&l.named, &o.named, l.matched) > l.matched
	})
}

// Delivered tells how many tokens of the prompt the engine found in its own cache, -1 unknown, where it
// prefilled by itself: it corrects what is assumed of a replica without events.
func (l *Lease) Delivered(cached int) {
	if l != nil && l.local {
		l.pool.RecordComputed(&l.member.Member, l.named, l.matched, cached)
	}
}
