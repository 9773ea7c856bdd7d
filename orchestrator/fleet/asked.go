package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/tandem-router/tandem/internal/engine"
)

// A failure may be a reason to ask the engine itself whether it works. Many fail at once, of one cause: those
// share their questions. Nobody takes part in one that had begun before, since its answer may tell of the
// time before the failure. So one is under way at most, and one waits for its end.

// health is the questions of a server that requests wait for.
type health struct {
	mu        sync.Mutex // guards the following
	now, next *question
}

// question is one of them.
type question struct {
	answered chan struct{} // closed when err is there
	err      error         // written before that
}

// Works asks the engine's server whether it works, together with others who ask at this time. The error is
// nil where it does, and also where ctx ended before anybody knew.
func (e *Endpoint) Works(ctx context.Context) error {
	q := e.w.ask()
	select {
	case <-ctx.Done():
		return nil
	case <-q.answered:
	}
	var said *engine.StatusError
	if errors.As(q.err, &said) && said.Status < http.StatusInternalServerError {
		return nil
	}
	return q.err
}

// ask returns a question that begins now, or when the one that is under way has been answered.
func (w *Watcher) ask() *question {
	h := &w.life.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now != nil && h.next != nil {
		return h.next
	}
	q := &question{answered: make(chan struct{})}
	if h.now != nil {
		h.next = q
		return q
	}
	h.now = q
	go w.answer(q)
	return q
}

// answer asks, for q and then for those who came meanwhile. It ends with the last of them: each has the time
// of a probe.
func (w *Watcher) answer(q *question) {
	for ; q != nil; q = w.life.health.done() {
		q.err = errNotAsked // by a panic
		w.fleet.opt.Panics.Contain("health", func() {
			ctx, cancel := context.WithTimeout(context.Background(), w.set.Load().probe)
			defer cancel()
			q.err = w.client.Health(ctx)
		})
		close(q.answered)
	}
}

// done moves on to the next question, nil where nobody has one.
func (h *health) done() *question {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.next = h.next, nil
	return h.now
}
