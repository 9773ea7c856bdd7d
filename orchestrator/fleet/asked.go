package fleet

import (
	"context"
	"sync"
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

// ask returns a question that begins now, or after the answer to the question that is under way.
func (p *pulse) ask() *question {
	h := &p.health
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
	go p.answer(q)
	return q
}

// answer answers q and then the questions that came meanwhile, until none is left. Each question has the
// time of a probe.
func (p *pulse) answer(q *question) {
	for ; q != nil; q = p.health.done() {
		q.err = errNotAsked // if Health panics
		p.panics.Contain("health", func() {
			ctx, cancel := context.WithTimeout(context.Background(), p.server.set.Load().probe)
			defer cancel()
			q.err = p.server.client.Health(ctx)
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
