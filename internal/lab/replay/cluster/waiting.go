package cluster

import (
	"time"

	"github.com/tandem-router/tandem/internal/waitline"
)

// Forecaster is a [Router] that says what is to be expected of a request that it has just found no room for.
// Those who wait at it try in the order of [waitline.Line], the first few of them, as in production; at
// others in the order in which they came, until one finds no room.
type Forecaster interface {
	// RoomIn returns how long it should take until there is room for q, and between two like it that find room,
	// 0 unknown.
	RoomIn(q *Query) (room, every time.Duration)
	RoomTries() int // how many of those who wait try when room may have come
}

// tries is how many of those who wait try when room may have come.
func (f *front) tries() int {
	if r, ok := f.Router.(Forecaster); ok {
		return r.RoomTries()
	}
	return 1
}

// enqueue lets a request wait. Where others waited it has not tried yet, and does so if it is among the
// first.
func (c *Cluster) enqueue(x *call) {
	f := x.front
	if f.waiting.Len() >= c.cfg.QueueLimit {
		c.refuse(x)
		return
	}
	if f.waiting.Len() == 0 {
		c.wait(x)
		return
	}
	place := f.waiting.Push(x, c.waitOf(x))
	if _, ok := f.Router.(Forecaster); !ok || f.waiting.Before(place) >= f.tries() {
		return
	}
	f.waiting.Remove(place)
	if !c.place(x) {
		c.wait(x)
	}
}

// admit places those who wait at a router, in their order, until so many have found no room.
func (c *Cluster) admit(f *front) {
	c.expire(f)
	for c.admitOne(f) {
	}
}

// expire refuses who has waited for too long.
func (c *Cluster) expire(f *front) {
	if f.waiting.Len() == 0 || c.clock.now < f.expires {
		return
	}
	f.expires = c.clock.now + c.cfg.QueueTime
	for _, p := range f.waiting.All() {
		if until := p.Who.rec.At + c.cfg.QueueTime; until < c.clock.now {
			f.waiting.Remove(p)
			c.refuse(p.Who)
		} else {
			f.expires = min(f.expires, until)
		}
	}
}

// admitOne lets the first of those who wait try until one is placed or refused, and reports whether one was.
func (c *Cluster) admitOne(f *front) bool {
	var failed []*call
	defer func() {
		for _, x := range failed {
			c.wait(x)
		}
	}()
	for range f.tries() {
		if f.waiting.Len() == 0 {
			return false
		}
		p := f.waiting.At(0)
		f.waiting.Remove(p)
		if c.place(p.Who) {
			return true
		}
		failed = append(failed, p.Who)
	}
	return false
}

// wait puts a request that has found no room among those who wait.
func (c *Cluster) wait(x *call) {
	w := c.waitOf(x)
	if r, ok := x.front.Router.(Forecaster); ok {
		w.Room, w.Every = r.RoomIn(&x.q)
	}
	x.front.waiting.Push(x, w)
	x.front.expires = min(x.front.expires, x.rec.At+c.cfg.QueueTime)
}

// waitOf returns the wait of a request that has not tried. One that has failed is a newcomer, as in
// production; at the routers of others it goes first.
func (c *Cluster) waitOf(x *call) waitline.Wait {
	w := waitline.Wait{Came: x.rec.At, Number: uint64(x.q.Slot)}
	if x.rec.Failures > 0 {
		w.Came = 0
		if _, ok := x.front.Router.(Forecaster); ok {
			w.Came = c.clock.now
		}
	}
	return w
}
