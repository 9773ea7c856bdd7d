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
}

// come places a request that has come, or has failed and is to be tried again, or lets it wait. Where others
// wait it has not tried yet, and does so if it is among the first and its router forecasts room.
func (c *Cluster) come(x *call) {
	f, again := x.front, x.rec.Failures > 0
	_, forecasts := f.Router.(Forecaster)
	wait, seen := f.waiting.Enter(0)
	n := waitline.Newcomer[*call]{Who: x, Came: c.cameAt(x), Running: again}
	if !wait || again && !forecasts {
		if c.place(x) {
			return
		}
		n.Seen, n.Found = seen, c.found(x)
	}
	if _, err := f.waiting.Join(&n); err != nil {
		c.refuse(x)
		return
	}
	if f.expires = min(f.expires, x.rec.At+c.cfg.QueueTime); forecasts {
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

// admit lets the waiting requests of a router try, because room may have come.
func (c *Cluster) admit(f *front) {
	c.expire(f)
	f.waiting.Wake()
	c.tryReady(f)
}

// tryReady tries the requests that the queue releases, until there is none.
func (c *Cluster) tryReady(f *front) {
	for w := f.waiting.Next(); w != nil; w = f.waiting.Next() {
		switch {
		case !f.waiting.Begin(w):
		case c.place(w.Who):
			f.waiting.Leave(w)
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
		if until := w.Who.rec.At + c.cfg.QueueTime; until < c.clock.now {
			f.waiting.Leave(w)
			c.refuse(w.Who)
		} else {
			f.expires = min(f.expires, until)
		}
	}
}
