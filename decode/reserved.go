package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/turns"
)

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
	p.reserved.Remove(l)
	l.member.ledger.move(l, admitted)
}

// admitDue admits every reserved lease whose prefill should have begun.
func (p *Pool) admitDue(now time.Time) {
	for {
		first := p.reserved.First()
		if first == nil || first.reservation.admitAt.After(now) {
			return
		}
		p.admit(first)
	}
}

// newReserved returns an empty queue of reserved leases, by when they are admitted.
func newReserved() turns.Heap[Lease] {
	return turns.NewHeap(
		func(a, b *Lease) bool { return a.reservation.admitAt.Before(b.reservation.admitAt) },
		func(l *Lease) *int { return &l.reservation.place },
	)
}
