package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// Speculate lets the index count the blocks of the prompt that was booked on l's replica before its events
// say so, within the given time.
func (l *Lease) Speculate(within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	guess := !l.guessed && l.entry.State() != ledger.Ended
	l.guessed = true
	l.pool.members.Unlock()
	if guess {
		l.pool.Speculate(&l.member.Member, l.entry.Named, within, now)
	}
}

// Exact reports whether nothing shows that other blocks of the prompt are on l's replica now than were
// believed when it was booked, or that somebody else brings or computes more of them there at the same time.
// Only then is it known what a transfer that begins now will move.
func (l *Lease) Exact() bool {
	return l.pool.HasOnly(&l.member.Member, l.entry.Named, l.entry.Matched) && !l.others()
}

// others reports whether the replica was sent a request before which has no answer yet and whose prompt has
// the next block in common that l's lacks.
func (l *Lease) others() bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	return l.member.book.Unanswered(&l.entry, l.entry.Matched, p) > l.entry.Matched
}

// Delivered tells how many tokens of the prompt the engine found in its own cache, -1 unknown, when the
// replica prefilled by itself. The count corrects what is assumed of a replica without events, and says
// which blocks the events of a replica must announce.
func (l *Lease) Delivered(cached int, now time.Time) {
	if l != nil && l.entry.Local {
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, l.entry.Matched, cached)
		l.pool.Expect(&l.member.Member, l.entry.Named, cached, now)
	}
}
