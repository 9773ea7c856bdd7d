package ledger

import (
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// orders is the leases of one account that wait for something. Each list has its own order, so that no
// question needs a look at all leases. Only [orders.count] writes them.
type orders struct {
	reserved   order.List // reserved leases by the time of admission; the weight is the blocks
	coming     order.List // leases whose KV has yet to come, by departure; the weight is the transfer time
	unsent     order.List // unsent leases of coming, by the time of sending; the weight is the transfer time
	landing    order.List // sent leases of coming, by the time of arrival; the weight is the transfer time
	held       alike      // reported leases
	unanswered alike      // leases that the engine has and has not answered
}

// count adds l to the lists of its states (sign 1), or removes l from these lists (sign -1).
func (o *orders) count(l *Lease, sign int) {
	if l.state == Reserved {
		o.reserved.Change(order.Entry{Key: l.admitAt, ID: l.id, Weight: int64(l.Whole())}, sign)
	}
	if l.state == Reported {
		o.held.change(l, sign)
	}
	if l.unanswered() {
		o.unanswered.change(l, sign)
	}
	if l.Local || !l.Missing() || l.state == Ended {
		return
	}
	at, by := l.sendAt, &o.unsent
	if l.state >= Sent {
		at, by = l.landAt, &o.landing
	}
	by.Change(order.Entry{Key: at, ID: l.id, Weight: at}, sign)
	o.coming.Change(order.Entry{Key: l.leaves(), ID: l.id, Weight: int64(l.Transfer)}, sign)
}

// Inbound returns the time for the KV that is on its way to the replica and the KV that leaves by then.
func (a *Account) Inbound(at int64) time.Duration {
	_, all := a.orders.coming.Before(func(leaves int64) bool { return leaves > at })
	return time.Duration(all)
}

// InboundBeside is [Account.Inbound] without the KV of l.
func (a *Account) InboundBeside(l *Lease, at int64) time.Duration {
	all := a.Inbound(at)
	if l.Missing() && !l.Local && l.state != Ended && l.leaves() <= at {
		all -= l.Transfer
	}
	return all
}

// A local prefill that begins in wait seconds takes places in steps away from leases whose KV is still to
// come from another replica. A lease that was not sent needs a place when it is sent, and at the earliest
// when that prefill begins, since it stands behind it in the engine's queue. A lease that was sent needs a
// place when its KV lands. If its KV lands before the prefill begins, it has its place by then: the prefill
// never delays it, and it needs no other.

// Delayed returns the seconds that all leases together wait for a prompt which the replica begins to compute
// in wait seconds and takes warm for: a step that a prompt fills admits no other request.
func (a *Account) Delayed(wait, warm float64, now int64) float64 {
	end := wait + warm
	if end <= wait {
		return 0
	}
	unsent, landing := spanOf(&a.orders.unsent, wait, end, now), spanOf(&a.orders.landing, wait, end, now)
	sum := float64(unsent.over)*(end-wait) + unsent.until(end) + landing.until(end)
	if wait <= 0 {
		sum += float64(landing.over) * end
	}
	return sum
}

// Needs returns how many leases need a place in a step before end, beside a local prefill that begins in
// wait seconds.
func (a *Account) Needs(wait, end float64, now int64) int {
	if end <= wait {
		return 0
	}
	unsent, landing := spanOf(&a.orders.unsent, wait, end, now), spanOf(&a.orders.landing, wait, end, now)
	n := unsent.over + unsent.n + landing.n
	if wait <= 0 {
		n += landing.over
	}
	return n
}

// span is how many leases of a list have their time before a span begins, how many have it within the span,
// and in how many seconds from now the latter have it, added up.
type span struct {
	over, n int
	seconds float64
}

func spanOf(o *order.List, from, to float64, now int64) span {
	in := func(key int64) float64 { return time.Duration(key - now).Seconds() }
	over, before := o.Before(func(key int64) bool { return in(key) >= from })
	n, all := o.Before(func(key int64) bool { return in(key) >= to })
	return span{over, n - over, time.Duration(all - before - int64(n-over)*now).Seconds()}
}

// until returns the seconds from the times of the leases within the span until a time, added up.
func (d span) until(end float64) float64 { return float64(d.n)*end - d.seconds }
