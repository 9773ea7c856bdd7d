package decode

import (
	"math"
	"slices"
	"time"
)

// coming is the leases on one replica whose prompts others compute, until their blocks are there. Guarded by the lock of the pool.
type coming []*Lease

func (c *coming) add(l *Lease) { *c = append(*c, l) }

func (c *coming) remove(l *Lease) {
	at := slices.Index(*c, l)
	*c = slices.Delete(*c, at, at+1)
}

// delayed returns the seconds that they would wait, all together, for a prompt which the replica begins to compute itself in wait seconds and takes warm for: no
// request is admitted in steps that a running prompt fills, see [scoring.Pair].
func (c coming) delayed(wait, warm float64, now time.Time) float64 {
	sum := 0.0
	for _, l := range c {
		sum += max(0, wait+warm-l.needs(wait, now))
	}
	return sum
}

// needs returns in how many seconds l needs a place in a step, where somebody else's prompt begins in wait seconds and has been sent already: to be admitted, before
// which it is behind that prompt however early it comes, or, where it has been, to begin with the blocks that it got meanwhile, which it does before that prompt.
func (l *Lease) needs(wait float64, now time.Time) float64 {
	if l.state < sent {
		return max(wait, l.inbound.sendAt.Sub(now).Seconds())
	}
	if lands := max(0, l.inbound.landAt.Sub(now).Seconds()); lands >= wait {
		return lands
	}
	return math.Inf(1)
}
