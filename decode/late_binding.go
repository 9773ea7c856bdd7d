package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

// soon is too short a time to look for another replica.
const soon = 50 * time.Millisecond

// Holds reports whether l's replica is still as good for l as when it was booked. It is if it is healthy, is
// not being drained, has room for l, and computes no other prompts that l would wait for. If it is not,
// reason says why, and room is the time until the replica should be ready, [Never] if it will not be.
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
		return false, "it lost its room", p.rooms.in(m, &a, short)
	}
	if busy := m.local.blocksFor(now, p.settings.Piece.Seconds()); busy > soon && !l.entry.Local {
		return false, "it prefills other prompts", busy
	}
	return true, "", 0
}

// Ahead returns the seconds of the transfers that come before l's: leaving of the transfers that l's sender
// has booked before, and coming of the transfers to l's own replica that have begun.
func (l *Lease) Ahead(now time.Time) (leaving, coming float64) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	coming = l.member.account.InboundBeside(&l.entry, l.pool.ledger.At(now)).Seconds()
	return l.from.Ahead(l.place).Seconds(), coming
}

// Slower returns the seconds by which the answer ends later on c than on l's replica, at the same load. It is
// negative if the answer ends earlier on c. A difference within the measurement error counts as none.
func (l *Lease) Slower(c *Candidate) float64 {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	has := l.member
	if !has.learned.Steps.Known() || !c.member.learned.Steps.Known() {
		return 0
	}
	at := meanLoad([]Candidate{*c}, p.learned.speeds.StepSpeed())
	speed := p.learned.speed(has)
	longer := has.longer(&speed, &at.pool)
	at.offer(has, longer)
	at.offer(c.member, c.longer)
	return (at.behind(c.member, c.longer) - at.behind(has, longer)) * c.answer
}

// shortOf returns the blocks that l's replica lacks for l, and the headroom without l that says so. Blocks
// that the engine reports already need no room.
func (p *Pool) shortOf(l *Lease, now time.Time) (int, ledger.Headroom) {
	m := l.member
	a := p.rooms.headroomNow(m, p.members.All, now)
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
