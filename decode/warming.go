package decode

import (
	"math"
	"slices"
	"time"
)

// warming is the local prefills booked on one replica that are not done yet, in the order of booking, which is that of the engine. Guarded by Pool.Mu.
//
// What is done leaves with its whole prediction, so that no error of one is carried on to the next.
type warming struct {
	leases []*Lease
	work   time.Duration // predicted of all
	since  time.Time     // when the first of them can have begun
}

func (w *warming) add(l *Lease, now time.Time) {
	if len(w.leases) == 0 {
		w.since = now
	}
	w.leases = append(w.leases, l)
	w.work += l.warm
}

func (w *warming) remove(l *Lease, now time.Time) {
	at := slices.Index(w.leases, l)
	if at == 0 {
		w.since = now
	}
	w.leases = slices.Delete(w.leases, at, at+1)
	w.work -= l.warm
}

// wait returns the predicted time until all are done, given that the first has run for a while.
func (w *warming) wait(now time.Time) time.Duration {
	if len(w.leases) == 0 {
		return 0
	}
	return w.work - min(w.leases[0].warm, max(0, now.Sub(w.since)))
}

// warms returns the predicted time until m has computed all prompts that it prefills itself, those of other routers included.
func (m *member) warms(now time.Time) time.Duration {
	return m.ledger.warming.wait(now) + m.elsewhere.Work
}

// coming is the leases on one replica whose prompts others compute, until their blocks are there. Guarded by Pool.Mu.
type coming []*Lease

func (c *coming) add(l *Lease) { *c = append(*c, l) }

func (c *coming) remove(l *Lease) {
	at := slices.Index(*c, l)
	*c = slices.Delete(*c, at, at+1)
}

// delayed returns the seconds that they would wait, all together, for a prompt which the replica begins to compute itself in wait seconds and takes warm for: no
// request is admitted in steps that a running prompt fills, see [scoring.Table.Behind].
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
	if !l.bound {
		return max(wait, l.sentAt.Sub(now).Seconds())
	}
	if lands := max(0, l.landAt.Sub(now).Seconds()); lands >= wait {
		return lands
	}
	return math.Inf(1)
}
