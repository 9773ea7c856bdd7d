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
// First come, first tried: the request at the head tries again each time room may have come ([admission.wake]); while somebody waits,
// newcomers wait behind. The queue is bounded; at the bound a newcomer is refused at once with errQueueFull.
//
// Safe for concurrent use.
type admission struct {
	mu      sync.Mutex
	waiting list.List // of *waiter, oldest first
	limit   int
	closed  bool
}

// waiter is one queued request. turn has room for one signal, so that a wake-up between two tries is not lost.
type waiter struct {
	turn chan struct{}
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

// enter calls try until it reports true, ctx ends, the queue refuses, or patience passes. The first call is made at once unless others wait already.
// try is called by the caller's goroutine, never while the queue is locked.
func (a *admission) enter(ctx context.Context, patience time.Duration, try func() (done bool)) error {
	a.mu.Lock()
	switch {
	case a.closed:
		a.mu.Unlock()
		return errDraining
	case a.waiting.Len() == 0:
		a.mu.Unlock()
		if try() {
			return nil
		}
		a.mu.Lock()
	}
	if a.closed {
		a.mu.Unlock()
		return errDraining
	}
	if a.waiting.Len() >= a.limit {
		a.mu.Unlock()
		return errQueueFull
	}
	w := &waiter{turn: make(chan struct{}, 1)}
	place := a.waiting.PushBack(w)
	if place == a.waiting.Front() {
		w.turn <- struct{}{} // room may have come between the first try and now
	}
	a.mu.Unlock()
	defer a.leave(place)
	return w.wait(ctx, patience, try, a)
}

// wait is the life of a waiter in the queue.
func (w *waiter) wait(ctx context.Context, patience time.Duration, try func() bool, a *admission) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return errQueueTime
		case <-w.turn:
			if a.isClosed() {
				return errDraining
			}
			if try() {
				return nil
			}
		}
	}
}

// leave takes a waiter out and gives the next one its turn.
func (a *admission) leave(place *list.Element) {
	a.mu.Lock()
	a.waiting.Remove(place)
	a.mu.Unlock()
	a.wake()
}

// wake gives the request at the head another try. To be called whenever room may have come: a lease ended, a load report came in, a replica joined.
func (a *admission) wake() {
	a.mu.Lock()
	if front := a.waiting.Front(); front != nil {
		front.Value.(*waiter).signal()
	}
	a.mu.Unlock()
}

// close refuses everybody who waits and everybody who comes.
func (a *admission) close() {
	a.mu.Lock()
	a.closed = true
	for e := a.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*waiter).signal()
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
	return a.waiting.Len()
}

func (w *waiter) signal() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}
