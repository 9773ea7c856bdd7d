package orchestrator

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// admission is the queue of requests for which no decode replica has room now.
//
// First come, first tried: the request at the head tries again each time room may have come
// ([admission.wake]); while somebody waits, newcomers wait behind. One that finds itself too large for
// anything but a nearly empty replica stands aside: in a line of such requests, whose head is tried first,
// and for which nobody waits. Else one request could keep everybody out while all replicas empty. The queue
// is bounded; at the bound a newcomer is refused at once with errQueueFull.
//
// Safe for concurrent use.
type admission struct {
	mu     sync.Mutex // guards the following
	large  list.List  // of *waiter, oldest first: those that stand aside
	line   list.List  // of *waiter, oldest first: all others
	limit  int        // of both together
	closed bool
}

// entry is how a request comes to the queue.
type entry struct {
	patience time.Duration
	// It has been admitted before, and is tried again: a router that drains lets it go on.
	running bool
	try     func() outcome // is called by the request's own goroutine, never while the queue is locked
}

// outcome is what became of a try.
type outcome uint8

const (
	waitsInLine outcome = iota // there is no room now
	waitsAside                 // nor will there be while replicas are in use
	goesOn                     // it has a plan, or another reason than room not to
)

// waiter is one queued request. turn has room for one signal, so that a wake-up between two tries is not
// lost.
type waiter struct {
	entry
	turn  chan struct{}
	in    *list.List    // guarded by the queue
	place *list.Element // guarded by the queue
}

var (
	errQueueFull = errors.New("the admission queue is full")
	errQueueTime = errors.New("no decode replica had room within the queue deadline")
	errDraining  = errors.New("the router is shutting down")
)

// setLimit changes how many requests may wait; those who wait already stay.
func (a *admission) setLimit(n int) {
	a.mu.Lock()
	a.limit = n
	a.mu.Unlock()
}

// enter tries until the request is admitted, ctx ends, the queue refuses, or patience passes. The first try
// is made at once unless others wait in line already.
func (a *admission) enter(ctx context.Context, e entry) error {
	a.mu.Lock()
	first := waitsInLine
	switch {
	case a.closed && !e.running:
		a.mu.Unlock()
		return errDraining
	case a.line.Len() == 0:
		a.mu.Unlock()
		if first = e.try(); first == goesOn {
			return nil
		}
		a.mu.Lock()
	}
	if a.closed && !e.running {
		a.mu.Unlock()
		return errDraining
	}
	if a.lengthLocked() >= a.limit {
		a.mu.Unlock()
		return errQueueFull
	}
	w := &waiter{entry: e, turn: make(chan struct{}, 1)}
	a.pushLocked(w, first)
	if w.place == w.in.Front() {
		w.signal() // room may have come between the first try and now
	}
	a.mu.Unlock()
	defer a.leave(w)
	return w.wait(ctx, a)
}

// pushLocked puts a waiter behind its like.
func (a *admission) pushLocked(w *waiter, why outcome) {
	w.in = &a.line
	if why == waitsAside {
		w.in = &a.large
	}
	w.place = w.in.PushBack(w)
}

// wait is the life of a waiter in the queue.
func (w *waiter) wait(ctx context.Context, a *admission) error {
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return errQueueTime
		case <-w.turn:
			if !w.running && a.isClosed() {
				return errDraining
			}
			switch w.try() {
			case goesOn:
				return nil
			case waitsAside:
				a.standAside(w)
			}
		}
	}
}

// standAside takes a waiter out of the line and gives the next one its turn.
func (a *admission) standAside(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.in == &a.large {
		return
	}
	w.in.Remove(w.place)
	a.pushLocked(w, waitsAside)
	signalFront(&a.line)
}

// leave takes a waiter out and gives the next ones their turn.
func (a *admission) leave(w *waiter) {
	a.mu.Lock()
	w.in.Remove(w.place)
	a.mu.Unlock()
	a.wake()
}

// wake gives the requests at the heads another try. To be called whenever room may have come: a lease ended,
// a load report came in, a replica joined.
func (a *admission) wake() {
	a.mu.Lock()
	signalFront(&a.large)
	signalFront(&a.line)
	a.mu.Unlock()
}

func signalFront(l *list.List) {
	if front := l.Front(); front != nil {
		front.Value.(*waiter).signal()
	}
}

// close refuses everybody who waits and everybody who comes, but for those that run already.
func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	for _, l := range []*list.List{&a.large, &a.line} {
		for e := l.Front(); e != nil; e = e.Next() {
			e.Value.(*waiter).signal()
		}
	}
	a.mu.Unlock()
}

func (a *admission) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// length tells how many wait.
func (a *admission) length() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lengthLocked()
}

func (a *admission) lengthLocked() int { return a.large.Len() + a.line.Len() }

func (w *waiter) signal() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}
