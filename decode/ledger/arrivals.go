package ledger

import (
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// Arrivals is the KV that one replica still gets from other replicas, lease by lease.
type Arrivals struct {
	all     order.List // by departure; the weight is the transfer time
	unsent  order.List // of leases that were not sent, by the time of sending; the weight is that time
	landing order.List // of sent leases, by the time of arrival; the weight is that time
}

// count adds the KV of l (sign 1) or removes it (sign -1), if it is still to come.
func (c *Arrivals) count(l *Lease, sign int) {
	if l.Local || !l.Missing() || l.state == Ended {
		return
	}
	at, by := l.sendAt, &c.unsent
	if l.state >= Sent {
		at, by = l.landAt, &c.landing
	}
	by.Change(order.Entry{Key: at, ID: l.id, Weight: at}, sign)
	c.all.Change(order.Entry{Key: l.leaves(), ID: l.id, Weight: int64(l.Transfer)}, sign)
}

// Moving returns the time for all KV that is still to come, of leases in any state.
func (c *Arrivals) Moving() time.Duration { return time.Duration(c.all.Weight()) }

// Inbound returns the time for the KV that is on its way to the replica and the KV that leaves by then.
func (c *Arrivals) Inbound(at int64) time.Duration {
	_, all := c.all.Before(func(leaves int64) bool { return leaves > at })
	return time.Duration(all)
}

// InboundBeside is [Arrivals.Inbound] without the KV of l.
func (c *Arrivals) InboundBeside(l *Lease, at int64) time.Duration {
	all := c.Inbound(at)
	if l.Missing() && !l.Local && l.state != Ended && l.leaves() <= at {
		all -= l.Transfer
	}
	return all
}

// Backlog returns the seconds of transfers that are left when a prompt is ready, of KV that leaves other
// replicas before. Transfers come one after the other, from now on at the earliest. The KV of other routers
// leaves at unknown times, and counts as leaving now. at is the time when the prompt is ready.
func (c *Arrivals) Backlog(theirs *PeerLoad, ready time.Duration, at int64) float64 {
	if c.Moving()+theirs.Moving <= ready { // even if all KV left now
		return 0
	}
	return max(0, (c.Inbound(at) + theirs.Moving - ready).Seconds())
}

// A local prefill that begins in wait seconds takes places in steps away from leases whose KV is still to
// come from another replica. A lease that was not sent needs a place when it is sent, and at the earliest
// when that prefill begins, since it stands behind it in the engine's queue. A lease that was sent needs a
// place when its KV lands. If its KV lands before the prefill begins, it has its place by then: the prefill
// never delays it, and it needs no other.

// Delayed returns the seconds that all leases together wait for a prompt which the replica begins to compute
// in wait seconds and takes warm for: a step that a prompt fills admits no other request.
func (c *Arrivals) Delayed(wait, warm float64, now int64) float64 {
	end := wait + warm
	if end <= wait {
		return 0
	}
	unsent, landing := spanOf(&c.unsent, wait, end, now), spanOf(&c.landing, wait, end, now)
	sum := float64(unsent.over)*(end-wait) + unsent.until(end) + landing.until(end)
	if wait <= 0 {
		sum += float64(landing.over) * end
	}
	return sum
}

// Needs returns how many leases need a place in a step before end, beside a local prefill that begins in
// wait seconds.
func (c *Arrivals) Needs(wait, end float64, now int64) int {
	if end <= wait {
		return 0
	}
	unsent, landing := spanOf(&c.unsent, wait, end, now), spanOf(&c.landing, wait, end, now)
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
