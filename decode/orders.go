package decode

import "time"

// orders is the leases of one ledger that wait for something, each in the order of what is asked about them,
// so that nobody has to look at all of them. Only [orders.count] writes them. Guarded by the lock of the
// pool.
type orders struct {
	reserved   ordered // reserved leases by when they are admitted, with their blocks
	coming     ordered // leases whose KV blocks come from another replica by booking, with the time for those
	unsent     ordered // of these, who was not sent, by when it should be, which is its weight, too
	landing    ordered // and who was sent, by when its blocks should be here, which is its weight, too
	held       alike   // reported leases
	unanswered alike   // leases that the engine has got and has not answered
	pieces     ordered // leases whose prompts are computed in pieces by whose turn comes, with what is left
}

// count adds l to the orders in which it stands as it is now, or takes it out of them, by sign: 1 or -1.
func (o *orders) count(l *Lease, sign int) {
	p := l.pool
	if l.state == reserved {
		o.reserved.change(entry{p.sinceEpoch(l.reservation.admitAt), l.id, int64(l.whole())}, sign)
	}
	if l.state == reported {
		o.held.change(l, sign)
	}
	if l.unanswered() {
		o.unanswered.change(l, sign)
	}
	x := &l.prompt.inbound
	switch {
	case l.prompt.state != pending || l.state == ended:
	case l.prompt.local && l.prompt.pieces.on:
		o.pieces.change(entry{l.due(), l.id, int64(l.prompt.predicted)}, sign)
	case l.prompt.local:
	default:
		at, by := p.sinceEpoch(x.sendAt), &o.unsent
		if l.state >= sent {
			at, by = p.sinceEpoch(x.landAt), &o.landing
		}
		by.change(entry{at, l.id, at}, sign)
		o.coming.change(entry{int64(l.id), l.id, int64(x.transfer)}, sign)
	}
}

// unanswered reports whether the engine has got l and has not answered.
func (l *Lease) unanswered() bool {
	return (l.state == sent || l.state == reported) && l.prompt.state != answered
}

// change adds e, or takes it out, by sign: 1 or -1.
func (o *ordered) change(e entry, sign int) {
	if sign > 0 {
		o.add(e)
	} else {
		o.remove(e)
	}
}

// ahead returns the time for the KV blocks that come to l's replica and were booked before l.
func (o *orders) ahead(l *Lease) time.Duration {
	_, all := o.coming.before(func(id int64) bool { return id >= int64(l.id) })
	return time.Duration(all)
}

// longest is far more than any time that is expected, and can be added to another one.
const longest = 1 << 61

// sinceEpoch returns t as orders have it.
func (p *Pool) sinceEpoch(t time.Time) int64 {
	return int64(min(max(t.Sub(p.epoch), -longest), longest))
}
