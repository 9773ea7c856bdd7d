package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/waitline"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// admission is the queue of requests for which no decode replica has room now.
//
// They wait in the order of [waitline.Line]. The first [planner.RoomTries] of the line try again, one after
// the other, each time room may have come ([admission.wake]). One that finds itself too large for anything
// but a nearly empty replica stands aside: in a line of such requests, whose head is tried first, and for
// which nobody waits. Else one request could keep everybody out while all replicas empty. Who could be served
// by other replicas, as another model is, has lines of his own. The queue is bounded; at the bound a newcomer
// is refused at once with errQueueFull, but nobody who has been admitted before.
//
// Safe for concurrent use.
type admission struct {
	mu      sync.Mutex // guards the following
	byPlace map[uint64]*lines
	began   time.Time // when the first came
	waiting int       // in all lines
	came    uint64    // so far
	limit   int       // of waiting
	closed  bool
}

// lines are those who wait for room on the same replicas. They are there as long as somebody waits in them.
type lines struct {
	large line // those that stand aside, oldest first
	line  line // all others
}

// entry is how a request comes to the queue.
type entry struct {
	patience time.Duration
	// Reports whether it has been admitted before, or a part of it has: a router that drains lets it go on, and
	// so does a queue that is full, which bounds who comes and not who is here. nil: it has not.
	running func() bool
	// These are called by the request's own goroutine, never while the queue is locked.
	place func() uint64        // names the replicas that could serve it; nil: as 0
	more  func() time.Duration // how much longer it waits, asked when patience is over; nil: no longer
	try   func() outcome
}

// outcome is what became of a try.
type outcome struct {
	verdict verdict
	room    time.Duration // until there should be room, where it waits
	every   time.Duration // between two like it that find room; 0 unknown
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
	at     uint64                   // its place
	in     *line                    // of that
	stands *waitline.Place[*waiter] // where in that line
	number uint64                   // of those who came
	tries  int                      // left for it and those behind it, one after the other
	found  outcome                  // by its newest try
	look   bool                     // its place may be another one by now
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
// is made at once unless others wait in line already for the same replicas.
func (a *admission) enter(ctx context.Context, e entry) error {
	var at uint64
	if a.length() > 0 { // most find nobody, and need not know their place
		at = e.where()
	}
	others, err := a.others(&e, at)
	if err != nil {
		return err
	}
	var first outcome
	if !others {
		if first = e.try(); first.verdict == goesOn {
			return nil
		}
		at = e.where()
	}
	w, err := a.join(e, first, at)
	if err != nil {
		return err
	}
	defer a.leave(w)
	return w.wait(ctx, a)
}

// others reports whether others wait in line at a newcomer's place.
func (a *admission) others(e *entry, at uint64) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed && !e.runs() {
		return false, errDraining
	}
	l := a.byPlace[at]
	return l != nil && l.line.Len() > 0, nil
}

// join lets a newcomer wait behind its first try, if it has made one.
func (a *admission) join(e entry, first outcome, at uint64) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed && !e.runs():
		return nil, errDraining
	case a.waiting >= a.limit && !e.runs():
		return nil, errQueueFull
	}
	w := &waiter{entry: e, turn: make(chan struct{}, 1), came: time.Now()}
	if a.came == 0 {
		a.began = w.came
	}
	a.came++
	w.number = a.came
	if a.pushLocked(w, first, at) < planner.RoomTries {
		w.signal(1) // it has not tried yet, or room may have come between its first try and now
	}
	w.in.settle()
	return w, nil
}

func (e *entry) runs() bool { return e.running != nil && e.running() }

func (e *entry) where() uint64 {
	if e.place == nil {
		return 0
	}
	return e.place()
}

// pushLocked gives a waiter its turn after a try, and returns how many of its line come before it.
func (a *admission) pushLocked(w *waiter, o outcome, at uint64) (before int) {
	l := a.byPlace[at]
	if l == nil {
		l = &lines{}
		if a.byPlace == nil {
			a.byPlace = map[uint64]*lines{}
		}
		a.byPlace[at] = l
	}
	a.waiting++
	w.at, w.found = at, o
	w.in = &l.large
	wait := waitline.Wait{Came: w.came.Sub(a.began), Number: w.number}
	if o.verdict != waitsAside {
		w.in = &l.line
		wait.Room, wait.Every = o.room, o.every
	}
	w.stands = w.in.Push(w, wait)
	return w.in.Before(w.stands)
}

// forgetLocked ends the lines of a place where nobody waits any more.
func (a *admission) forgetLocked(at uint64) {
	if l := a.byPlace[at]; l.large.Len() == 0 && l.line.Len() == 0 {
		delete(a.byPlace, at)
	}
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
			if w.more == nil || !waitsOn(timer, w.more()) {
				return errQueueTime
			}
		case <-w.turn:
			a.move(w)
			tries, closed := a.begin(w)
			switch {
			case closed && !w.runs():
				return errDraining
			case tries == 0: // somebody else has them
				continue
			}
			o := w.try()
			if o.verdict == goesOn {
				return nil
			}
			a.again(w, o, w.where(), tries-1)
		}
	}
}

// waitsOn sets a timer that has ended to go on for so long, and reports whether that is any time at all.
func waitsOn(timer *time.Timer, d time.Duration) bool {
	if d > 0 {
		timer.Reset(d)
	}
	return d > 0
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
// Other replicas may serve it by now.
func (a *admission) again(w *waiter, o outcome, at uint64, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.byPlace[w.at]
	if w.in == &was.large {
		return
	}
	from := w.at
	next := was.line.after(w)
	a.removeLocked(w)
	if o.verdict == waitsAside {
		left = planner.RoomTries // it keeps nobody out
	}
	if left > 0 && next != nil {
		next.signal(left)
	}
	a.pushLocked(w, o, at)
	if w.tries > 0 || at != from {
		a.retry(w, was, at)
	}
	was.line.settle()
	w.in.settle()
	a.forgetLocked(from)
}

// retry lets who is first try anew: room came while w tried, which may not have seen it, and which others may
// fit that w kept from trying; or w has come to a place where nobody has told it of any. It needs mu.
func (a *admission) retry(w *waiter, was *lines, at uint64) {
	if w.tries > 0 {
		w.tries = 0
		was.line.wake(planner.RoomTries)
	}
	now := a.byPlace[at]
	now.large.wake(1)
	now.line.wake(planner.RoomTries)
}

// removeLocked takes a waiter out of its line.
func (a *admission) removeLocked(w *waiter) {
	a.waiting--
	w.in.Remove(w.stands)
}

// leave takes a waiter out and gives the next ones their turn.
func (a *admission) leave(w *waiter) {
	a.mu.Lock()
	a.removeLocked(w)
	w.in.settle()
	a.forgetLocked(w.at)
	a.mu.Unlock()
	a.wake()
}

// wake gives the requests at the heads another try. To be called whenever room may have come: a lease ended,
// a load report came in, a replica joined.
func (a *admission) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.byPlace {
		l.large.wake(1)
		l.line.wake(planner.RoomTries)
	}
}

// close refuses everybody who waits and everybody who comes, but for those that run already.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, l := range a.byPlace {
		for _, p := range slices.Concat(l.large.All(), l.line.All()) {
			p.Who.signal(1)
		}
	}
}

// length tells how many wait.
func (a *admission) length() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting
}

// signal lets w try, and where it finds no room those behind it, so many tries all together. To be called
// with the queue locked.
func (w *waiter) signal(tries int) {
	w.tries = max(w.tries, tries)
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// backlog returns how long it should take until all who wait have found room, of the line in which that
// takes longest. Who stands aside is not in it.
func (a *admission) backlog() (longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.byPlace {
		longest = max(longest, l.line.Backlog())
	}
	return longest
}
