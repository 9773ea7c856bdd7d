package cluster

import (
	"cmp"
	"slices"
	"time"
)

// Forecaster is a [Router] that says when it should have room for the request that it has just found none
// for. Those who wait at it are asked in the order of when they came and that together, the first few of
// them, as in production (docs/decisions/0047); at others in the order in which they came, until one finds
// no room.
type Forecaster interface {
	RoomIn(q *Query) time.Duration
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
	if len(f.waiting) >= c.cfg.QueueLimit {
		c.refuse(x)
		return
	}
	if len(f.waiting) == 0 {
		f.wait(x)
		return
	}
	x.place.due = x.rec.At
	before := f.before(x)
	switch _, ok := f.Router.(Forecaster); {
	case !ok || before >= f.tries():
		f.waiting = slices.Insert(f.waiting, before, x)
	case !c.place(x):
		f.wait(x)
	}
}

// admit places those who wait at a router, in their order, until so many have found no room.
func (c *Cluster) admit(f *front) {
	for c.admitOne(f) {
	}
}

// admitOne lets the first of those who wait try until one is placed or refused, and reports whether one was.
func (c *Cluster) admitOne(f *front) bool {
	var failed []*call
	defer func() {
		for _, x := range failed {
			f.wait(x)
		}
	}()
	for range f.tries() {
		if len(f.waiting) == 0 {
			return false
		}
		x := f.waiting[0]
		f.waiting = slices.Delete(f.waiting, 0, 1)
		if c.clock.now-x.rec.At > c.cfg.QueueTime {
			c.refuse(x)
			return true
		}
		if c.place(x) {
			return true
		}
		failed = append(failed, x)
	}
	return false
}

// wait puts a request that has found no room among those who wait. One that has failed goes first.
func (f *front) wait(x *call) {
	x.place.due = x.rec.At
	if r, ok := f.Router.(Forecaster); ok {
		x.place.due += r.RoomIn(&x.q)
	}
	if x.rec.Failures > 0 {
		x.place.due = 0
	}
	f.waiting = slices.Insert(f.waiting, f.before(x), x)
}

// before returns how many of those who wait come before x.
func (f *front) before(x *call) int {
	at, _ := slices.BinarySearchFunc(f.waiting, x, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.place.due, b.place.due), cmp.Compare(a.rec.At, b.rec.At),
			cmp.Compare(a.q.Slot, b.q.Slot))
	})
	return at
}
