package observe

import (
	"slices"
	"sync"
)

// Ring keeps the newest records and passes each record to its watchers.
//
// Safe for concurrent use. A watcher that reads too slowly loses records, and learns how many.
type Ring struct {
	mu       sync.Mutex
	records  []*Record
	next     int
	full     bool
	watchers map[*watcherFeed]struct{}
}

// watcherFeed is one subscriber of the ring.
type watcherFeed struct {
	records chan *Record
	lost    uint64 // guarded by Ring.mu
}

// NewRing makes a ring of the given number of records, at least one.
func NewRing(size int) *Ring {
	return &Ring{records: make([]*Record, max(size, 1)), watchers: map[*watcherFeed]struct{}{}}
}

// Add keeps r. The caller must not change r afterwards.
func (g *Ring) Add(r *Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records[g.next] = r
	g.next++
	if g.next == len(g.records) {
		g.next, g.full = 0, true
	}
	for w := range g.watchers {
		select {
		case w.records <- r:
		default:
			w.lost++
		}
	}
}

// Resize changes how many records are kept, the newest first.
func (g *Ring) Resize(size int) {
	size = max(size, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if size == len(g.records) {
		return
	}
	kept := g.newestLocked(size)
	g.records = make([]*Record, size)
	g.next, g.full = 0, false
	for _, r := range slices.Backward(kept) {
		g.records[g.next] = r
		g.next++
	}
	if g.next == size {
		g.next, g.full = 0, true
	}
}

// Newest returns up to n records, newest first.
func (g *Ring) Newest(n int) []*Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newestLocked(n)
}

func (g *Ring) newestLocked(n int) []*Record {
	count := g.next
	if g.full {
		count = len(g.records)
	}
	out := make([]*Record, 0, min(n, count))
	for i := 1; len(out) < cap(out); i++ {
		out = append(out, g.records[(g.next-i+len(g.records))%len(g.records)])
	}
	return out
}

// Find returns the newest record of a request, by its own id or the client's, or nil.
func (g *Ring) Find(id string) *Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := 1; i <= len(g.records); i++ {
		r := g.records[(g.next-i+len(g.records))%len(g.records)]
		if r == nil {
			return nil
		}
		if r.ID == id || r.ClientID == id {
			return r
		}
	}
	return nil
}

// Watch subscribes to new records; stop ends the subscription. lost returns how many records were dropped
// because the subscriber was slow.
func (g *Ring) Watch(buffer int) (records <-chan *Record, lost func() uint64, stop func()) {
	w := &watcherFeed{records: make(chan *Record, buffer)}
	g.mu.Lock()
	g.watchers[w] = struct{}{}
	g.mu.Unlock()
	lost = func() uint64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		return w.lost
	}
	stop = func() {
		g.mu.Lock()
		delete(g.watchers, w)
		g.mu.Unlock()
	}
	return w.records, lost, stop
}
