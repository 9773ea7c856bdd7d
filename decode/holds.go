package decode

import (
	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Holds reports whether l can still be served: its replica is in the pool, healthy and not being drained, and
// l has not ended. If not, reason says why.
func (l *Lease) Holds() (ok bool, reason string) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	switch m := l.member; {
	case m.Gone:
		return false, "it left the pool"
	case !m.Healthy:
		return false, "it is unhealthy"
	case l.entry.State() == ledger.Ended:
		return false, "its lease has ended"
	case m.R.Draining:
		return false, roster.Draining
	}
	return true, ""
}

// Outbox returns the seconds of transfers that the replica which sends l's blocks has yet to finish before it
// sends them.
func (l *Lease) Outbox() float64 {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return l.from.Ahead(l.place).Seconds()
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
