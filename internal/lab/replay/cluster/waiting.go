package cluster

import (
	"time"

	"github.com/tandem-router/tandem/internal/waitline"
)

// Forecaster is a [Router] that gives a forecast for a request that found no room. Its requests wait in the
// [waitline.Queue] that production uses. Requests of other routers wait in the same queue without
// a forecast: in order of arrival, until one finds no room.
type Forecaster interface {
	// RoomIn returns what the newest try of q found.
	RoomIn(q *Query) waitline.Found
	// Order returns how urgent q is, and its tenant's share. tenant is 0 where there are no tenants.
	Order(q *Query, tenant uint32) waitline.Order
	// Behind sets how much work of other requests may be ahead of q when it is placed; 0 for any.
	Behind(q *Query, most time.Duration)
	// FirstBy returns after how long the first token of q is too late, and q is refused; 0 for never.
	FirstBy(q *Query) time.Duration
	// Cost returns what the placed request q takes.
	Cost(q *Query) float64
}

// come places a request that has come, or has failed and is to be tried again, or lets it wait. Where others
// wait it has not tried yet, and does so if it is among the first and its router forecasts room.
func (c *Cluster) come(x *call) {
	f, again := x.front, x.rec.Failures > 0
	_, forecasts := f.Router.(Forecaster)
	f.waiting.At(c.clock.now)
	wait, seen := f.waiting.Enter(0)
	n := waitline.Newcomer[*call]{Who: x, Came: c.cameAt(x), Order: c.order(x), Running: again}
	if !wait || again && !forecasts {
		if c.try(x) {
			f.waiting.Charge(n.Order, c.cost(x))
			return
		}
		n.Seen, n.Found = seen, c.found(x)
	}
	if _, err := f.waiting.Join(&n); err != nil {
		c.refuse(x)
		return
	}
	if f.expires = min(f.expires, c.until(x)); forecasts {
		c.tryReady(f)
	}
}

// cameAt is when a request came to the queue. One that has failed is a newcomer, as in production; at the
// routers of others it goes first.
func (c *Cluster) cameAt(x *call) time.Duration {
	if x.rec.Failures == 0 {
		return x.rec.At
	}
	if _, ok := x.front.Router.(Forecaster); ok {
		return c.clock.now
	}
	return 0
}

// found is what the newest try of a request found.
func (c *Cluster) found(x *call) waitline.Found {
	if r, ok := x.front.Router.(Forecaster); ok {
		return r.RoomIn(&x.q)
	}
	return waitline.Found{}
}

// order is the place of a request among the waiting requests. All requests have the same place where the
// router knows neither classes nor tenants.
func (c *Cluster) order(x *call) waitline.Order {
	r, ok := x.front.Router.(Forecaster)
	if !ok || c.cfg.Mix == nil {
		return waitline.Order{}
	}
	tenant := uint32(0)
	if len(c.cfg.Mix.Tenants) > 1 {
		tenant = 1 + uint32(c.cfg.Mix.Tenant(x.session.number))
	}
	return r.Order(&x.q, tenant)
}

// try places a request, behind no more work than the queue allows.
func (c *Cluster) try(x *call) bool {
	if r, ok := x.front.Router.(Forecaster); ok {
		r.Behind(&x.q, x.front.waiting.Bound(c.order(x)))
	}
	return c.place(x)
}

// cost is what a placed request takes; 0 for a refused request.
func (c *Cluster) cost(x *call) float64 {
	if r, ok := x.front.Router.(Forecaster); ok && x.place.placed {
		return r.Cost(&x.q)
	}
	return 0
}

// promptComputed lets requests try that wait for less work ahead, as production does where shares are kept.
func (c *Cluster) promptComputed(x *call) {
	if c.order(x).Tenant != 0 {
		c.admit(x.front)
	}
}

// admit lets the waiting requests of a router try, because room may have come.
func (c *Cluster) admit(f *front) {
	c.expire(f)
	f.waiting.Wake()
	c.tryReady(f)
}

// tryReady tries the requests that the queue releases, until there is none.
func (c *Cluster) tryReady(f *front) {
	f.waiting.At(c.clock.now)
	for w := f.waiting.Next(); w != nil; w = f.waiting.Next() {
		switch {
		case f.waiting.Displaced(w):
			f.waiting.Leave(w)
			c.refuse(w.Who)
		case !f.waiting.Begin(w):
		case c.try(w.Who):
			f.waiting.Admit(w, c.cost(w.Who))
		default:
			f.waiting.Again(w, c.found(w.Who), 0)
		}
	}
}

// expire refuses the requests that have waited for too long.
func (c *Cluster) expire(f *front) {
	if f.waiting.Len() == 0 || c.clock.now < f.expires {
		return
	}
	f.expires = c.clock.now + c.cfg.QueueTime
	for _, w := range f.waiting.All() {
		if until := c.until(w.Who); until < c.clock.now {
			f.waiting.Leave(w)
			c.refuse(w.Who)
		} else {
			f.expires = min(f.expires, until)
		}
	}
}

// until is how long a request waits for room.
func (c *Cluster) until(x *call) time.Duration {
	patience := c.cfg.QueueTime
	if r, ok := x.front.Router.(Forecaster); ok {
		if by := r.FirstBy(&x.q); by > 0 {
			patience = min(patience, by)
		}
	}
	return x.rec.At + patience
}
