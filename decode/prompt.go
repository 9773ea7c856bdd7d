package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// Speculate lets the index count the blocks of the prompt on l's replica before its events announce them,
// within the given time.
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

// Exact reports whether the cached part of the prompt on l's replica is certainly as it was when booked, and
// no other request brings or computes more of the prompt there at the same time. Only then is it known what
// a transfer that begins now will move.
func (l *Lease) Exact() bool {
	return l.pool.HasOnly(&l.member.Member, l.entry.Named, l.entry.Matched) && !l.others()
}

// others reports whether the replica has an earlier unanswered request whose prompt shares the first block
// that l's prompt lacks.
func (l *Lease) others() bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	return l.member.account.Unanswered(&l.entry, l.entry.Matched, p) > l.entry.Matched
}

// Delivered records how many tokens of the prompt the engine found in its own cache, -1 unknown, when the
// replica prefilled itself. The count corrects the assumptions about a replica without events, and says
// which blocks the events of a replica must announce.
func (l *Lease) Delivered(cached int, now time.Time) {
	if l != nil && l.entry.Local {
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, l.entry.Matched, cached)
		l.pool.Expect(&l.member.Member, l.entry.Named, cached, now)
	}
}

// Posts notes that l's replica reads the blocks of so many tokens from now on. Safe for concurrent use.
func (l *Lease) Posts(tokens int) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	l.member.learned.Posts(tokens)
}
