package liveness

import (
	"context"
	"sync"
	"time"
)

// Watchdog ends a wait when a condition says that nothing will come. The zero value watches nothing, and a
// watchdog that was stopped can watch again. Safe for concurrent use.
type Watchdog struct {
	mu    sync.Mutex // guards the following
	looks Looker     // nil while nothing is watched
	end   context.CancelCauseFunc
	due   time.Time // when it looks next
	timer *time.Timer
}

// Looker is the condition.
type Looker interface {
	// Look returns when to look again, or why nothing will come of what waits.
	Look() (next time.Duration, found error)
}

// Watch calls Look after first, and again whenever the returned time has passed. An error of Look ends the
// watched wait, with this cause, and the watch. Watch replaces an earlier watch.
func (w *Watchdog) Watch(first time.Duration, end context.CancelCauseFunc, looks Looker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks, w.end = looks, end
	w.lookIn(first)
}

// lookIn lets check be called after d. It needs mu.
func (w *Watchdog) lookIn(d time.Duration) {
	w.due = time.Now().Add(d)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.check)
		return
	}
	w.timer.Reset(d)
}

func (w *Watchdog) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looks == nil || time.Now().Before(w.due) { // the call was for an earlier watch
		return
	}
	next, found := w.looks.Look()
	if found != nil {
		w.looks = nil
		w.end(found)
		return
	}
	w.lookIn(next)
}

// Stop ends the watch. Harmless on nil, and when repeated.
func (w *Watchdog) Stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = nil
	if w.timer != nil {
		w.timer.Stop()
	}
}
