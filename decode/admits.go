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

// releaseDiscount is the part of the blocks which should come free until a prompt's KV is there that is
// counted on. With none of them the room of each request would lie idle while its prompt is computed, which
// is a fifth of the time where prompts are long. With all of them one request in two would wait inside the
// engine.
const releaseDiscount = 0.5

// admits reports whether a request of so many blocks, whose prompt can be there when ready has passed, may be
// booked on m. There has to be room for it by then, and still room for each reserved lease that begins later.
//
// Without the second all who wait for their prefill would count on the same blocks. And if their room were
// kept free for them from now on, it would lie idle as long as they wait.
func (p *Pool) admits(m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	if a.capacity == 0 {
		return true
	}
	blocks = a.asked(blocks)
	// What comes free is worked out only where it matters.
	if a.free < blocks && a.free+p.counted(m, a, ready) < blocks {
		return false
	}
	if a.reserved == 0 {
		return true
	}
	asked := 0
	for _, d := range p.pendingDemand(m, demand{ready, blocks}, now) {
		asked += d.blocks
		if d.in >= ready && asked > a.free+p.released(m, a, d.in) {
			return false
		}
	}
	return true
}

// counted returns the blocks that may be counted on to come free until ready has passed.
func (p *Pool) counted(m *member, a *account, ready time.Duration) int {
	return int(releaseDiscount * float64(p.released(m, a, ready)))
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
