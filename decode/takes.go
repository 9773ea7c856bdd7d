package decode

import (
	"cmp"
	"slices"
	"time"
)

// due is room that somebody who waits for prefill will need.
type due struct {
	in     time.Duration
	blocks int
}

// early is the part of what should come free until a prompt's blocks are there that is counted on. Nothing of it would let the room of each request lie idle
// while its prompt is computed, which is a fifth of the time where prompts are long; all of it would let one in two wait inside the engine.
const early = 0.5

// takes reports whether a request of so many blocks whose prompt can be there in the given time may be booked on m: there has to be room for it by then, and
// whoever waits there for prefill and begins later has to find room as well. Without that all who wait would count on the same blocks; and were their room
// kept free for them from now on, it would lie idle as long as they wait.
func (p *Pool) takes(m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	if a.capacity == 0 {
		return true
	}
	blocks = a.asked(blocks)
	if a.free < blocks && a.free+p.counted(m, a, ready) < blocks { // what comes free is asked for only where it matters
		return false
	}
	if a.soft == 0 {
		return true
	}
	asked := 0
	for _, d := range p.dues(m, due{ready, blocks}, now) {
		asked += d.blocks
		if d.in >= ready && asked > a.free+p.released(m, a, d.in) {
			return false
		}
	}
	return true
}

// counted is what may be counted on to come free until then.
func (p *Pool) counted(m *member, a *account, ready time.Duration) int {
	return int(early * float64(p.released(m, a, ready)))
}

// dues lists who waits for prefill on m and one more, by when they begin.
func (p *Pool) dues(m *member, more due, now time.Time) []due {
	p.waiting = append(p.waiting[:0], more)
	for _, l := range m.ledger.leases {
		if l.state == reserved {
			p.waiting = append(p.waiting, due{l.admitAt.Sub(now), l.whole()})
		}
	}
	if e := &m.remote; e.Soft > 0 {
		p.waiting = append(p.waiting, due{e.SoftIn, e.Soft})
	}
	slices.SortStableFunc(p.waiting, func(a, b due) int { return cmp.Compare(a.in, b.in) })
	return p.waiting
}

// softIn is when, on average over their blocks, the soft leases of m turn hard.
func (m *member) softIn(now time.Time) time.Duration {
	sum, blocks := 0.0, 0
	for _, l := range m.ledger.leases {
		if l.state == reserved {
			sum += float64(l.whole()) * l.admitAt.Sub(now).Seconds()
			blocks += l.whole()
		}
	}
	return seconds(sum / float64(max(blocks, 1)))
}
