package decode

import "time"

// reservation is the part of a lease by which it waits for its prefill to begin. It says nothing once the
// lease is admitted.
type reservation struct {
	admitAt time.Time // when that is, at the latest
	place   int       // in Pool.reserved
}

// admit makes l admitted if it is reserved.
func (p *Pool) admit(l *Lease) {
	if l.state != reserved {
		return
	}
	p.reserved.remove(l)
	l.member.ledger.move(l, admitted)
}

// admitDue admits every reserved lease whose prefill should have begun.
func (p *Pool) admitDue(now time.Time) {
	for {
		first := p.reserved.first()
		if first == nil || first.reservation.admitAt.After(now) {
			return
		}
		p.admit(first)
	}
}

// newReserved returns an empty queue of reserved leases, by when they are admitted.
func newReserved() leaseQueue {
	return leaseQueue{
		before: func(a, b *Lease) bool { return a.reservation.admitAt.Before(b.reservation.admitAt) },
		place:  func(l *Lease) *int { return &l.reservation.place },
	}
}
