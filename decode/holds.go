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
