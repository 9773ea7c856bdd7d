package orchestrator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"

	"tandem/internal/openai"
)

// batchWidth is how many prompts of one batch are on their way at once.
const batchWidth = 32

// batch serves a completion with several prompts: each is a pair of its own, since one set of transfer parameters describes one prompt only.
// vLLM given one set for two prompts answers one of them wrongly, or dies. The answers are merged as if one engine had given them.
func (q *request) batch(ctx context.Context, req *openai.Request) *failure {
	if req.Stream {
		return q.batchStream(ctx, req)
	}
	wholes := make([][]byte, len(req.Prompts))
	f := q.eachPrompt(ctx, req, func(_ context.Context, i int, a *answer) *failure {
		wholes[i] = a.whole
		return nil
	})
	if f != nil {
		return f
	}
	merged, err := openai.MergeAnswers(wholes, "cmpl-"+q.id)
	if err != nil {
		f := refuse("stream", "merge", http.StatusBadGateway, "The answers to the prompts could not be put together.")
		f.err = err
		return f
	}
	q.w.Header().Set("Content-Type", "application/json")
	return q.give(http.StatusOK, merged)
}

// eachPrompt runs a job per prompt and gives each good answer to use, on the job's own goroutine. The first failure cancels the others and is returned.
func (q *request) eachPrompt(ctx context.Context, req *openai.Request, use func(ctx context.Context, i int, a *answer) *failure) *failure {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(batchWidth)
	first := q.newJob(req, 0)
	var broke crash
	for i := range req.Prompts {
		j := first
		if i > 0 {
			j = q.newJob(req, i)
		}
		group.Go(func() (err error) {
			defer broke.keep(&err)
			if f := j.serve(ctx, func(a *answer) *failure { return use(ctx, i, a) }); f != nil {
				return &siblingFailed{f}
			}
			return nil
		})
	}
	err := group.Wait()
	broke.again()
	q.mode = first.rec.Mode // the jobs' goroutines have ended
	if s, ok := errors.AsType[*siblingFailed](err); ok {
		return s.failure
	}
	return nil
}

// siblingFailed is why the other prompts of a batch are cancelled. It unwraps to nothing: what went wrong on one leg is no fact about the engines of another.
type siblingFailed struct{ failure *failure }

func (s *siblingFailed) Error() string {
	return "another prompt of the batch failed: " + s.failure.Error()
}

// batchStream merges the streams of a batch: events in the order in which they come, each with its prompt's index.
func (q *request) batchStream(ctx context.Context, req *openai.Request) *failure {
	m := &merger{q: q, id: "cmpl-" + q.id}
	f := q.eachPrompt(ctx, req, m.copy)
	if f != nil && !m.begun {
		return f
	}
	m.end(f)
	if f != nil {
		q.out = f.kind
	}
	return nil
}

// merger is the one writer behind the streams of a batch.
type merger struct {
	q  *request
	id string

	mu    sync.Mutex // guards the following and the client's connection
	begun bool
	usage openai.UsageSum
	buf   []byte
}

// copy brings one prompt's stream to its end.
func (m *merger) copy(ctx context.Context, i int, a *answer) *failure {
	a.resp.SetIdle(m.q.snap.cfg.Timeouts.DecodeIdle)
	var events openai.Events
	for {
		out, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return legFailed(ctx, "stream", a.to.member.ID, err)
		case a.bad != nil:
			return a.bad
		}
		if f := m.write(&events, out, i); f != nil {
			return f
		}
	}
}

// write sends the events of one prompt's chunk under the batch's id and the prompt's index; its usage is kept for the end.
func (m *merger) write(events *openai.Events, chunk []byte, index int) *failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buf = m.buf[:0]
	for e := range events.Feed(chunk) {
		data := e.Data()
		if e.IsDone() || e.IsComment() || m.usage.Add(data) {
			continue
		}
		m.buf = append(m.buf, "data: "...)
		m.buf = openai.RewriteChunk(m.buf, data, m.id, index)
		m.buf = append(m.buf, "\n\n"...)
	}
	return m.sendLocked()
}

func (m *merger) sendLocked() *failure {
	if len(m.buf) == 0 {
		return nil
	}
	if !m.begun {
		m.begun = true
		h := m.q.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		m.q.w.WriteHeader(http.StatusOK)
	}
	if err := m.q.w.send(m.buf); err != nil {
		return m.q.lost(err)
	}
	return nil
}

// end writes the summed usage and the end marker, or the error that ended the batch.
func (m *merger) end(f *failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.buf = m.buf[:0]
	switch {
	case f != nil && f.status == clientGone:
		return
	case f != nil:
		m.buf = append(m.buf, f.event(openai.Completions, 0)...)
	default:
		if usage := m.usage.Append(nil, m.id); len(usage) > 0 {
			m.buf = append(append(append(m.buf, "data: "...), usage...), "\n\n"...)
		}
		m.buf = append(m.buf, "data: [DONE]\n\n"...)
	}
	_ = m.sendLocked()
}
