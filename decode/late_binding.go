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
	coming = l.member.account.Coming().InboundBeside(&l.entry, l.pool.ledger.At(now)).Seconds()
	return l.from.Ahead(l.place).Seconds(), coming
}

// Slower returns the seconds by which the answer ends later on c than on l's replica, at the same load. It is
// negative if the answer ends earlier on c. A difference within the measurement error counts as none.
func (l *Lease) Slower(c *Candidate) float64 {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	has, other := l.member, c.member
	if !has.learned.Steps.Known() || !other.learned.Steps.Known() {
		return 0
	}
	at := meanLoad([]Candidate{*c}, p.learned.of(has).StepSpeed())
	speed := p.learned.speed(has)
	longer := has.longer(&speed, &at.pool)
	at.offer(has, longer)
	at.offer(other, c.longer)
	return (at.behind(other, c.longer) - at.behind(has, longer)) * c.answer
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
	return l.member.account.Unanswered(&l.entry, l.entry.Matched) > l.entry.Matched
}

// Alive reports whether l's replica is still in the pool and healthy.
func (l *Lease) Alive() bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return !l.member.Gone && l.member.Healthy
}

// ReplicaLeft reports whether l's replica has left the pool. Another engine may have its name.
func (l *Lease) ReplicaLeft() bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return l.member.Gone
}

// StepTime returns the seconds that a decode step on l's replica takes now.
func (l *Lease) StepTime() float64 {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	speed := p.learned.speed(l.member)
	return l.member.step(&speed)
}
