package orchestrator

import (
	"slices"

	"github.com/tandem-router/tandem/internal/waitline"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// line is waiters in the order in which they try. Guarded by the queue.
type line struct {
	waitline.Line[*waiter]
	settled bool // the order that it had when it settled: newest first
}

// after returns who comes next after w, nil where w is the last.
func (l *line) after(w *waiter) *waiter {
	if next := l.Before(w.stands) + 1; next < l.Len() {
		return l.At(next).Who
	}
	return nil
}

// settle lets the first try if the order has changed: tries that are being handed on in the other order may
// end with those who are last now.
func (l *line) settle() {
	if newest := l.NewestFirst(); newest != l.settled {
		l.settled = newest
		l.wake(planner.RoomTries)
	}
}

// wake lets the first of the line try, and those behind it, so many tries all together.
func (l *line) wake(tries int) {
	if l.Len() > 0 {
		l.At(0).Who.signal(tries)
	}
}

// moved lets everybody who waits go where he belongs now: other replicas may serve him than when he tried
// last. To be called when replicas have come, left, or serve other models.
func (a *admission) moved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.byPlace {
		for _, p := range slices.Concat(l.large.All(), l.line.All()) {
			p.Who.look = true
			p.Who.signal(0)
		}
	}
}

// move takes a waiter to the place that it has by now, with the turn that it has. Tries that it was given are
// for those that it leaves, who may be among the first now; where it is that at its new place it tries there.
func (a *admission) move(w *waiter) {
	if !a.looks(w) {
		return
	}
	at := w.where()
	a.mu.Lock()
	defer a.mu.Unlock()
	if at == w.at {
		return
	}
	from, was := w.at, a.byPlace[w.at]
	kept := w.tries > 0 || w.in.Before(w.stands) < planner.RoomTries
	a.removeLocked(w)
	if w.tries = 0; kept { // others from trying
		was.large.wake(1)
		was.line.wake(planner.RoomTries)
	}
	if a.pushLocked(w, w.found, at) < planner.RoomTries {
		w.signal(1)
	}
	was.line.settle()
	w.in.settle()
	a.forgetLocked(from)
}

// looks reports whether w has to look where it belongs.
func (a *admission) looks(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	look := w.look
	w.look = false
	return look
}
