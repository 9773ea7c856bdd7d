package kv

import (
	"slices"
	"sync/atomic"
	"time"
)

// Some stores drop blocks and announce nothing: MooncakeStore, LMCache, and the file and object tiers of
// vLLM's OffloadingConnector. A copy in such a store therefore counts for a time only. A holder that has
// announced a removal from a tier announces all removals from that tier.

// usualLife is how long a copy counts in a store that announces no removals.
const usualLife = 10 * time.Minute

// clock is the time of an Index by calls of [Index.Expire]. Events have only the clocks of their engines.
type clock struct {
	life  time.Duration // of a copy in a store that announces no removals
	aging atomic.Int64  // copies that will expire
	began atomic.Int64  // first call, in nanoseconds since 1970
	now   atomic.Int64  // newest call, in nanoseconds since the first
}

// tell sets the time.
func (c *clock) tell(now time.Time) {
	c.began.CompareAndSwap(0, now.UnixNano())
	c.now.Store(now.UnixNano() - c.began.Load())
}

// ages are the copies of a holding in stores that announce no removals, in the order of their ends.
type ages struct {
	list    []age
	first   int                  // of list that has not ended
	removes [lowerTiers + 1]bool // by tier: the holder announces removals from it
}

type age struct {
	hash  EngineHash
	place copies
	until int64 // as in clock
}

// lasts reports whether copies in a tier stay until their removal is announced.
func (a *ages) lasts(t Tier) bool { return t <= CPU || a.removes[t] }

// note takes in that a copy was stored.
func (a *ages) note(hash EngineHash, place copies, c *clock) {
	if a.lasts(place.tier) {
		return
	}
	a.list = append(a.list, age{hash, place, c.now.Load() + c.life.Nanoseconds()})
	c.aging.Add(1)
}

// announces notes that the holder announces removals from a tier.
func (a *ages) announces(t Tier, c *clock) {
	if a.lasts(t) {
		return
	}
	a.removes[t] = true
	a.keep(c, func(x *age) bool { return x.place.tier != t })
}

// keep drops the ages for which wanted is false.
func (a *ages) keep(c *clock, wanted func(*age) bool) {
	before := len(a.list) - a.first
	a.list = slices.Clone(slices.DeleteFunc(a.list[a.first:], func(x age) bool { return !wanted(&x) }))
	a.first = 0
	c.aging.Add(int64(len(a.list) - before))
}

// next returns a copy whose time has ended, false if there is none.
func (a *ages) next(c *clock) (age, bool) {
	if a.first == len(a.list) || a.list[a.first].until > c.now.Load() {
		return age{}, false
	}
	x := a.list[a.first]
	a.first++
	c.aging.Add(-1)
	if 2*a.first >= len(a.list) {
		a.keep(c, func(*age) bool { return true })
	}
	return x, true
}
