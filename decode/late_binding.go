package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Holds reports whether l's replica is still there, healthy, not being drained, has room for l and is through
// with the prompts that it prefills itself, behind which l would wait; if not, why, and in how long it should
// be ready, [Never] where it will not do any more.
func (l *Lease) Holds(now time.Time) (ok bool, reason string, room time.Duration) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	m := l.member
	switch {
	case m.Gone:
		return false, "it left the pool", Never
	case !m.Healthy:
		return false, "it is unhealthy", Never
	case l.entry.State() == ledger.Ended:
		return false, "its lease has ended", Never
	case m.R.Draining:
		return false, roster.Draining, Never
	}
	p.ledger.AdmitDue(now)
	if short, a := p.shortOf(l, now); short > 0 {
		return false, "it lost its room", p.roomIn(m, &a, short)
	}
	if busy := m.blocksFor(now, p.settings.Piece.Seconds()); busy > soon && !l.entry.Local {
		return false, "it prefills other prompts", busy
	}
	return true, "", 0
}

// Ahead returns the seconds of the transfers that come before l's and are not done: those from the replica
// that sends its blocks that were booked before, and those to its own that have begun.
func (l *Lease) Ahead(now time.Time) (leaving, coming float64) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	coming = l.member.book.InboundBeside(&l.entry, l.pool.ledger.At(now)).Seconds()
	return l.from.Ahead(l.place).Seconds(), coming
}

// Alive reports whether l's replica is still in the pool and healthy.
func (l *Lease) Alive() bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return !l.member.Gone && l.member.Healthy
}

// Left reports whether l's replica is no member of the pool any more. Another engine may have its name.
func (l *Lease) Left() bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return l.member.Gone
}

// Step returns the seconds that a decode step on l's replica takes now.
func (l *Lease) Step() float64 {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	speed := l.pool.speed(l.member)
	return l.member.step(&speed)
}

// soon is no time to look for another replica for.
const soon = 50 * time.Millisecond

// Never is longer than anybody waits.
const Never = time.Duration(math.MaxInt64)

// shortOf returns how many blocks its replica lacks for l, and the account without l that says so. What the
// engine counts already needs no room.
func (p *Pool) shortOf(l *Lease, now time.Time) (int, ledger.Account) {
	m := l.member
	a := p.accountNow(m, now)
	switch l.entry.State() {
	case ledger.Reported:
		return 0, a
	case ledger.Admitted, ledger.Sent:
		a.Free += l.entry.Whole()
	}
	if a.Fits(l.entry.Whole()) {
		return 0, a
	}
	return a.Asked(l.entry.Whole()) - a.Free, a
}
