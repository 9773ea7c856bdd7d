package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tandem/orchestrator/planner"
)

// admission is the queue of requests for which no decode replica has room now.
//
// A request's turn is when it came, and later by as long as it should have to wait for its room: who takes
// little, as one whose prefix is in use somewhere, passes who takes much, and nobody is passed for ever. The
// first [planner.RoomTries] of the line try again, one after the other, each time room may have come
// ([admission.wake]). One that finds itself too large for anything but a nearly empty replica stands aside:
// in a line of such requests, whose head is tried first, and for which nobody waits. Else one request could
// keep everybody out while all replicas empty. The queue is bounded; at the bound a newcomer is refused at
// once with errQueueFull.
//
// Safe for concurrent use.
type admission struct {
	mu     sync.Mutex // guards the following
	large  line       // those that stand aside, oldest first
	line   line       // all others
	came   uint64     // so far
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
type outcome struct {
	verdict verdict
	room    time.Duration // until there should be room, where it waits
}

type verdict uint8

const (
	waitsInLine verdict = iota // there is no room now
	waitsAside                 // nor will there be while replicas are in use
	goesOn                     // it has a plan, or another reason than room not to
)

// waiter is one queued request. turn has room for one signal, so that a wake-up between two tries is not
// lost.
type waiter struct {
	entry
	turn chan struct{}
	came time.Time

	// Guarded by the queue.
	in     *line
	due    time.Time // its turn
	number uint64    // of those who came: of equal turns the first comes first
	tries  int       // left for it and those behind it, one after the other
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
	var first outcome
	switch {
	case a.closed && !e.running:
		a.mu.Unlock()
		return errDraining
	case len(a.line.waiters) == 0:
		a.mu.Unlock()
		if first = e.try(); first.verdict == goesOn {
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
	w := &waiter{entry: e, turn: make(chan struct{}, 1), came: time.Now()}
	a.came++
	w.number = a.came
	if a.pushLocked(w, first) < planner.RoomTries {
		w.signal(1) // it has not tried yet, or room may have come between its first try and now
	}
	a.mu.Unlock()
	defer a.leave(w)
	return w.wait(ctx, a)
}

// pushLocked gives a waiter its turn after a try, and returns how many of its line come before it.
func (a *admission) pushLocked(w *waiter, o outcome) (before int) {
	w.due = w.came
	w.in = &a.large
	if o.verdict != waitsAside {
		w.in = &a.line
		w.due = w.came.Add(o.room)
	}
	return w.in.insert(w)
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
			tries, closed := a.begin(w)
			if !w.running && closed {
				return errDraining
			}
			o := w.try()
			if o.verdict == goesOn {
				return nil
			}
			a.again(w, o, tries-1)
		}
	}
}

// begin takes the tries that a waiter was given, and reports whether the queue is closed.
func (a *admission) begin(w *waiter) (tries int, closed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tries = w.tries
	w.tries = 0
	return tries, a.closed
}

// again gives a waiter that found no room its new turn, and lets who was next use the tries that are left.
func (a *admission) again(w *waiter, o outcome, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.in == &a.large {
		return
	}
	at := w.in.remove(w)
	if o.verdict == waitsAside {
		left = planner.RoomTries // it keeps nobody out
	}
	if left > 0 && at < len(a.line.waiters) {
		a.line.waiters[at].signal(left)
	}
	a.pushLocked(w, o)
}

// leave takes a waiter out and gives the next ones their turn.
func (a *admission) leave(w *waiter) {
	a.mu.Lock()
	w.in.remove(w)
	a.mu.Unlock()
	a.wake()
}

// wake gives the requests at the heads another try. To be called whenever room may have come: a lease ended,
// a load report came in, a replica joined.
func (a *admission) wake() {
	a.mu.Lock()
	a.large.wake(1)
	a.line.wake(planner.RoomTries)
	a.mu.Unlock()
}

// close refuses everybody who waits and everybody who comes, but for those that run already.
func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	for _, l := range []*line{&a.large, &a.line} {
		for _, w := range l.waiters {
			w.signal(1)
		}
	}
	a.mu.Unlock()
}

// length tells how many wait.
func (a *admission) length() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lengthLocked()
}

func (a *admission) lengthLocked() int { return len(a.large.waiters) + len(a.line.waiters) }

// signal lets w try, and where it finds no room those behind it, so many tries all together. To be called
// with the queue locked.
func (w *waiter) signal(tries int) {
	w.tries = max(w.tries, tries)
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// line is waiters in the order of their turns. Guarded by the queue.
type line struct {
	waiters []*waiter
}

// insert puts w where its turn is, and returns how many come before it.
func (l *line) insert(w *waiter) int {
	at := l.place(w)
	l.waiters = slices.Insert(l.waiters, at, w)
	return at
}

// remove takes w out, whose turn has not changed since it was put in, and returns how many came before it.
func (l *line) remove(w *waiter) int {
	at := l.place(w)
	l.waiters = slices.Delete(l.waiters, at, at+1)
	return at
}

// place returns how many come before w.
func (l *line) place(w *waiter) int {
	at, _ := slices.BinarySearchFunc(l.waiters, w, func(a, b *waiter) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number))
	})
	return at
}

// wake lets the first of the line try, and those behind it, so many tries all together.
func (l *line) wake(tries int) {
	if len(l.waiters) > 0 {
		l.waiters[0].signal(tries)
	}
}
