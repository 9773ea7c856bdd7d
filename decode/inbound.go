package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// inbound is the KV blocks of one lease on their way from another replica.
type inbound struct {
	transfer time.Duration   // predicted
	from     *replica.Outbox // of the sender
	place    time.Duration   // in it
	sendAt   time.Time       // when the request should be sent here
	landAt   time.Time       // when its blocks should be here
}

// mostExpecting is the share of a replica's room that may be held by requests whose blocks are on their way,
// where that takes longer than an answer. If they held all of it, no prompt could be computed there, so that
// all the others would be handed over as well, and the links would stay full (decision 0056). A request that
// waits at the router holds no room. Half of the room is seconds of transfers, which keep a link busy.
const mostExpecting = 0.5

// saturated reports whether c may not be sent other blocks: when the prompt is ready, those who still wait
// for theirs hold more than mostExpecting of the room, and they will wait for longer than an answer takes. It
// is false where c would compute the prompt later than its blocks could come.
func (p *Pool) saturated(c *Candidate, a *account, ready time.Duration) bool {
	if c.Inbound <= 0 || a.capacity == 0 || c.member.expecting(c.Inbound) <= mostExpecting*float64(a.most) {
		return false
	}
	return c.Inbound > p.life(c.member, a) && c.Local.Wait+c.Local.Warm <= ready.Seconds()+c.Inbound
}

// expecting returns the blocks that will be held by requests still waiting for theirs when inbound seconds of
// transfers to m are left. Leases and transfers of other routers count, too; who waits is taken to be done in
// proportion to the seconds of transfers that are.
func (m *member) expecting(inbound float64) float64 {
	g, e := &m.ledger, &m.remote
	blocks := float64(g.reserved + g.expecting + e.Reserved)
	if e.Sequences > 0 {
		blocks += float64(e.Held) * min(1, float64(e.Arriving)/float64(e.Sequences))
	}
	return blocks * inbound / max((g.moving+e.Moving).Seconds(), inbound)
}

// A local prefill that begins in wait seconds takes places in steps away from leases whose KV blocks are
// still to come from another replica. One that was not sent needs a place when it is sent, and at the
// earliest when that prefill begins, since it stands behind it in the engine's queue. One that was sent needs
// it when its KV lands. If that is before the prefill begins, it has its place by then: the prefill never
// delays it, and it needs no other.

// delayed returns the seconds that all of them together wait for a prompt which the replica begins to compute
// itself in wait seconds and takes warm for: a step that a prompt fills admits no other request.
func (o *orders) delayed(wait, warm float64, now int64) float64 {
	end := wait + warm
	if end <= wait {
		return 0
	}
	unsent, landing := o.unsent.due(wait, end, now), o.landing.due(wait, end, now)
	sum := float64(unsent.over)*(end-wait) + unsent.until(end) + landing.until(end)
	if wait <= 0 {
		sum += float64(landing.over) * end
	}
	return sum
}

// needs returns how many of them need a place in a step before end, beside a local prefill that begins in
// wait seconds.
func (o *orders) needs(wait, end float64, now int64) int {
	if end <= wait {
		return 0
	}
	unsent, landing := o.unsent.due(wait, end, now), o.landing.due(wait, end, now)
	n := unsent.over + unsent.n + landing.n
	if wait <= 0 {
		n += landing.over
	}
	return n
}

// due is how many leases of an order have their time before a span begins, how many within it, and in how
// many seconds from now these have it, added up.
type due struct {
	over, n int
	seconds float64
}

func (o *ordered) due(from, to float64, now int64) due {
	in := func(key int64) float64 { return time.Duration(key - now).Seconds() }
	over, before := o.before(func(key int64) bool { return in(key) >= from })
	n, all := o.before(func(key int64) bool { return in(key) >= to })
	return due{over, n - over, time.Duration(all - before - int64(n-over)*now).Seconds()}
}

// until returns the seconds from the times of those within the span until a time, added up.
func (d due) until(end float64) float64 { return float64(d.n)*end - d.seconds }
