package decode

import (
	"math"
	"slices"
	"time"
)

// inboundKV is the leases on one replica whose KV blocks are still to come from another. Guarded by the lock
// of the pool.
type inboundKV []*Lease

func (in *inboundKV) add(l *Lease) { *in = append(*in, l) }

func (in *inboundKV) remove(l *Lease) {
	at := slices.Index(*in, l)
	*in = slices.Delete(*in, at, at+1)
}

// delayed returns the seconds that all of them together wait for a prompt which the replica begins to compute
// itself in wait seconds and takes warm for: a step that a prompt fills admits no other request.
func (in inboundKV) delayed(wait, warm float64, now time.Time) float64 {
	sum := 0.0
	for _, l := range in {
		sum += max(0, wait+warm-l.needs(wait, now))
	}
	return sum
}

// needs returns in how many seconds l needs a place in a step, beside a local prefill that begins in wait
// seconds and was sent already.
//
// A lease that was not sent needs it when it is sent, and at the earliest when that prefill begins, since it
// stands behind it in the engine's queue. One that was sent needs it when its KV lands. If that is before the
// prefill begins, it has its place by then: the prefill never delays it, and it needs no other, +Inf.
func (l *Lease) needs(wait float64, now time.Time) float64 {
	if l.state < sent {
		return max(wait, l.inbound.sendAt.Sub(now).Seconds())
	}
	if lands := max(0, l.inbound.landAt.Sub(now).Seconds()); lands >= wait {
		return lands
	}
	return math.Inf(1)
}
