package orchestrator

import (
	"tandem/internal/waitline"
	"tandem/orchestrator/planner"
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
