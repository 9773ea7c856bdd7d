package decode

import "time"

// orders is the leases of one ledger that wait for something, each in the order of what is asked about them,
// so that nobody has to look at all of them. Only [orders.count] writes them. Guarded by the lock of the
// pool.
type orders struct {
	reserved   ordered // reserved leases by when they are admitted, with their blocks
	coming     ordered // leases whose KV blocks come from elsewhere by when they leave there, with their time
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
	case l.prompt.local && l.prompt.pieces.On:
		o.pieces.change(entry{l.prompt.pieces.Due, l.id, int64(l.prompt.predicted)}, sign)
	case l.prompt.local:
	default:
		at, by := p.sinceEpoch(x.sendAt), &o.unsent
		if l.state >= sent {
			at, by = p.sinceEpoch(x.landAt), &o.landing
		}
		by.change(entry{at, l.id, at}, sign)
		o.coming.change(entry{l.leaves(), l.id, int64(x.transfer)}, sign)
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

// leaves returns when the KV blocks of l should leave the replica that computes them, long ago where the
// engine was asked to get them.
func (l *Lease) leaves() int64 {
	if l.state >= sent {
		return -longest
	}
	return l.pool.sinceEpoch(l.prompt.inbound.sendAt)
}

// inbound returns the time for the KV blocks that are on their way here and those that leave by then.
func (o *orders) inbound(at int64) time.Duration {
	_, all := o.coming.before(func(leaves int64) bool { return leaves > at })
	return time.Duration(all)
}

// ahead returns the time for the KV blocks of others that are on their way to l's replica now.
func (l *Lease) ahead(now time.Time) time.Duration {
	at := l.pool.sinceEpoch(now)
	all := l.member.ledger.orders.inbound(at)
	if l.prompt.state == pending && !l.prompt.local && l.state != ended && l.leaves() <= at {
		all -= l.prompt.inbound.transfer
	}
	return all
}

// backlog returns the seconds for which blocks that leave other replicas for m before a prompt is ready are
// still on their way when it is: they come one after the other, from now on at the earliest. Of those of
// other routers nobody says when they leave, and they are taken to do so now.
func (p *Pool) backlog(m *member, ready time.Duration, now time.Time) float64 {
	if m.ledger.moving+m.remote.Moving <= ready { // even if all of them left now
		return 0
	}
	coming := m.ledger.orders.inbound(p.sinceEpoch(now.Add(ready)))
	return max(0, (coming + m.remote.Moving - ready).Seconds())
}

// longest is far more than any time that is expected, and can be added to another one.
const longest = 1 << 61

// sinceEpoch returns t as orders have it.
func (p *Pool) sinceEpoch(t time.Time) int64 {
	return int64(min(max(t.Sub(p.epoch), -longest), longest))
}
