package decode

import (
	"cmp"
	"slices"
	"time"
)

// demand is the room that a lease will need when its prefill begins.
type demand struct {
	in     time.Duration
	blocks int
}

// shortWait is how long a request may be expected to wait inside the engine for its room. It is priced (see
// [scoring.Decode.Room]), and whoever waits here instead waits for others as well, and has no prompt computed
// meanwhile. A longer wait is better spent here, where any replica that has room can end it.
const shortWait = 4 * time.Second

// patience is shortWait for a request of so many blocks. Inside the engine it keeps out all who come later,
// however little they need, so that the more it takes of the replica the less it may wait there.
func (a *account) patience(blocks int) time.Duration {
	return time.Duration(float64(shortWait) * (1 - float64(blocks)/float64(max(a.most, 1))))
}

// admits reports whether a request of so many blocks, whose prompt can be there when ready has passed, may be
// booked on m. There has to be room for it soon after, and for each reserved lease that begins later.
//
// Without the second all who wait for their prefill would count on the same blocks. And if their room were
// kept free for them from now on, it would lie idle as long as they wait.
func (p *Pool) admits(m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	if a.capacity == 0 {
		return true
	}
	blocks = a.asked(blocks)
	// What comes free is worked out only where it matters.
	soon := a.patience(blocks)
	if a.free < blocks && a.free+p.released(m, a, ready+soon) < blocks {
		return false
	}
	if a.reserved == 0 {
		return true
	}
	asked := 0
	for _, d := range p.pendingDemand(m, demand{ready, blocks}, now) {
		asked += d.blocks
		if d.in >= ready && asked > a.free+p.released(m, a, d.in+soon) {
			return false
		}
	}
	return true
}

// pendingDemand lists the demand of m's reserved leases, of those of other routers, and one more, the
// earliest first.
func (p *Pool) pendingDemand(m *member, more demand, now time.Time) []demand {
	p.demands = append(p.demands[:0], more)
	for _, l := range m.ledger.leases {
		if l.state == reserved {
			p.demands = append(p.demands, demand{l.admitAt.Sub(now), l.whole()})
		}
	}
	if e := &m.remote; e.Reserved > 0 {
		p.demands = append(p.demands, demand{e.ReservedIn, e.Reserved})
	}
	slices.SortStableFunc(p.demands, func(a, b demand) int { return cmp.Compare(a.in, b.in) })
	return p.demands
}

// reservedIn returns when the reserved leases of m are admitted, on average over their blocks.
func (m *member) reservedIn(now time.Time) time.Duration {
	sum, blocks := 0.0, 0
	for _, l := range m.ledger.leases {
		if l.state == reserved {
			sum += float64(l.whole()) * l.admitAt.Sub(now).Seconds()
			blocks += l.whole()
		}
	}
	return seconds(sum / float64(max(blocks, 1)))
}
