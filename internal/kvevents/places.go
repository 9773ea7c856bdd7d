package kvevents

import (
	"slices"
	"sync"
)

const (
	// maxReplays bounds the replays under way in one Context: after a router's start every engine may have
	// hundreds of megabytes to tell.
	maxReplays = 16

	// maxDoubtful bounds the replays under way of engines that left their last replay unanswered.
	maxDoubtful = maxReplays / 2

	// silentShare is the part of the replay time-out for which an engine that says nothing keeps its place.
	silentShare = 10
)

// standing is what an engine's last replays say about its next one. Engines that answered go first.
type standing uint8

const (
	proven standing = iota
	unheard
	doubtful
)

// places are the replays that may be under way at the same time, and the streams that wait for a place.
//
// An engine that does not answer sends nothing, so its replay needs no place. The replay gives its place
// back after a while and continues to wait without one. So an engine with a dead replay port delays the
// streams behind it for moments only, not for the replay time-out. It never delays engines that are known to
// answer.
type places struct {
	mu       sync.Mutex // guards the following, and the fields of each place
	taken    int
	doubtful int      // of taken
	queue    []*place // by standing, and by time among equals
}

// place is one stream's, in places.
type place struct {
	ring     func() // wakes its stream
	standing standing
	waiting  bool
	held     bool
}

// want reports whether p may begin its replay now. If not it is rung as soon as it may, and has to ask again.
func (ps *places) want(p *place, s standing) bool {
	ps.mu.Lock()
	if !p.held && !p.waiting {
		p.standing, p.waiting = s, true
		at := slices.IndexFunc(ps.queue, func(o *place) bool { return o.standing > s })
		if at < 0 {
			at = len(ps.queue)
		}
		ps.queue = slices.Insert(ps.queue, at, p)
	}
	called := ps.callLocked()
	held := p.held
	ps.mu.Unlock()
	ring(called, p)
	return held
}

// insist takes a place even beyond the limit: the answer to the request is coming.
func (ps *places) insist(p *place) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !p.held {
		ps.takeLocked(p)
	}
}

// leave gives p's place back, or its place in the queue.
func (ps *places) leave(p *place) {
	ps.mu.Lock()
	switch {
	case p.held:
		p.held = false
		ps.taken--
		if p.standing == doubtful {
			ps.doubtful--
		}
	case p.waiting:
		p.waiting = false
		ps.queue = slices.DeleteFunc(ps.queue, func(o *place) bool { return o == p })
	}
	called := ps.callLocked()
	ps.mu.Unlock()
	ring(called, p)
}

// callLocked gives free places to waiting streams and returns the places it gave.
func (ps *places) callLocked() (called []*place) {
	for ps.taken < maxReplays && len(ps.queue) > 0 {
		p := ps.queue[0] // the doubtful stand last
		if p.standing == doubtful && ps.doubtful == maxDoubtful {
			return called
		}
		ps.queue = slices.Delete(ps.queue, 0, 1)
		ps.takeLocked(p)
		called = append(called, p)
	}
	return called
}

func (ps *places) takeLocked(p *place) {
	p.waiting, p.held = false, true
	ps.taken++
	if p.standing == doubtful {
		ps.doubtful++
	}
}

func ring(called []*place, but *place) {
	for _, p := range called {
		if p != but {
			p.ring()
		}
	}
}
