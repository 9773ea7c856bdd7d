package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/tandem-router/tandem/internal/engine"
)

// After a failure, a request may ask the engine whether it works. Many requests fail at once for one cause,
// so they share a question. A request never shares a question that began before its failure, since the
// answer may be about the time before. So at most one question is under way, and one more waits for its end.

// health is the questions of a server that requests wait for.
type health struct {
	mu        sync.Mutex // guards the following
	now, next *question
}

// question is one question to the engine.
type question struct {
	answered chan struct{} // closed when err is there
	err      error         // written before that
}

// Works asks the engine's server whether it works, and shares the question with other requests that ask now.
// The error is nil if it works, and also if ctx ended before an answer.
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

// ask returns a question that begins now, or after the answer to the question that is under way.
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

// answer answers q and then the questions that came meanwhile, until none is left. Each question has the
// time of a probe.
func (w *Watcher) answer(q *question) {
	for ; q != nil; q = w.life.health.done() {
		q.err = errNotAsked // if Health panics
		w.fleet.opt.Panics.Contain("health", func() {
			ctx, cancel := context.WithTimeout(context.Background(), w.set.Load().probe)
			defer cancel()
			q.err = w.client.Health(ctx)
		})
		close(q.answered)
	}
}

// done moves on to the next question, nil if there is none.
func (h *health) done() *question {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.next = h.next, nil
	return h.now
}
