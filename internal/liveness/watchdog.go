package liveness

import (
	"context"
	"sync"
	"time"
)

// Watchdog ends something that waits when a condition says that nothing will come of it. Safe for concurrent
// use.
type Watchdog struct {
	look func() (next time.Duration, found error)
	end  context.CancelCauseFunc

	mu    sync.Mutex // guards the following
	timer *time.Timer
	over  bool
}

// Watch calls look after first, and again whenever the time that it returned has passed. An error that it
// found ends what waits, with this cause, and the watch.
func Watch(
	first time.Duration, end context.CancelCauseFunc, look func() (next time.Duration, found error),
) *Watchdog {
	w := &Watchdog{look: look, end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(first, w.check)
	return w
}

func (w *Watchdog) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	next, found := w.look()
	if found != nil {
		w.end(found)
		return
	}
	w.timer.Reset(next)
}

// Stop ends the watch. Harmless on nil, and when repeated.
func (w *Watchdog) Stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
