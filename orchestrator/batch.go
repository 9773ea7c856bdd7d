package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// batchWidth is how many prompts of one batch run at once.
const batchWidth = 32

// batch serves a completion with several prompts. Each prompt gets its own pair, because transfer parameters
// describe one prompt only: vLLM would answer a second prompt wrongly, or die. The answers are merged into
// the form that one engine gives.
func (q *request) batch(ctx context.Context, req *openai.Request) *failure {
	if req.Stream {
		return q.batchStream(ctx, req)
	}
	wholes := make([][]byte, len(req.Prompts))
	var first *observe.Record
	f := q.eachPrompt(ctx, req, func(_ context.Context, i int, d *delivery) *failure {
		if wholes[i] = bytes.Clone(d.current.whole); i == 0 {
			first = d.job.rec
		}
		return nil
	})
	if f != nil {
		return f
	}
	merged, err := openai.MergeAnswers(wholes, "cmpl-"+q.id)
	if err != nil {
		return refuse(kindMerge, site{phase: phaseStream, err: err})
	}
	return q.w.whole(http.StatusOK, "application/json", merged, first)
}

// eachPrompt runs a job for each prompt and gives each good answer to use, on the job's own goroutine. The
// first failure cancels the other jobs and is returned.
func (q *request) eachPrompt(
	ctx context.Context, req *openai.Request, use func(ctx context.Context, i int, d *delivery) *failure,
) *failure {
	group, ctx := errgroup.WithContext(ctx)
	width, narrow := q.places.widen(min(batchWidth, len(req.Prompts)))
	defer narrow()
	group.SetLimit(width)
	first := q.newJob(req, 0)
	state := new(batchState)
	var broke crash
	for i := range req.Prompts {
		j := first
		if i > 0 {
			j = q.newJob(req, i)
		}
		j.of.batch = state
		group.Go(func() (err error) {
			defer broke.keep(&err)
			if f := serveJob(ctx, j, func(d *delivery) *failure { return use(ctx, i, d) }); f != nil {
				return &siblingFailed{f}
			}
			return nil
		})
	}
	err := group.Wait()
	broke.again()
	q.outcome.mode = first.rec.Mode // the jobs' goroutines have ended
	if s, ok := errors.AsType[*siblingFailed](err); ok {
		return s.why
	}
	return nil
}

// siblingFailed is the cause for which the other prompts of a batch are cancelled. It unwraps to nothing,
// because a failure of one leg says nothing about the engines of another leg.
type siblingFailed struct{ why *failure }

func (s *siblingFailed) Error() string {
	return "another prompt of the batch failed: " + s.why.Error()
}

// batchStream merges the streams of a batch. Events keep the order of their arrival, and each has the index
// of its prompt.
func (q *request) batchStream(ctx context.Context, req *openai.Request) *failure {
	m := &merger{w: q.w, id: "cmpl-" + q.id}
	f := q.eachPrompt(ctx, req, m.copy)
	switch {
	case m.bad != nil:
		return m.bad
	case f != nil:
		return f
	}
	return m.end()
}

// merger merges the streams of a batch.
type merger struct {
	w  *client
	id string

	mu    sync.Mutex // guards the following and the client
	usage openai.UsageSum
	bad   *failure // an engine's error event, which is the last that the client gets
	buf   []byte
}

// copy passes one prompt's stream on to its end.
func (m *merger) copy(ctx context.Context, i int, d *delivery) *failure {
	var cut openai.Events
	rec := d.job.rec
	return d.stream(ctx, func(events []byte, _ int) *failure {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bad != nil {
			return m.bad.ofSibling()
		}
		m.bad = d.current.end.bad
		return m.addLocked(&cut, events, i, rec)
	})
}

// addLocked sends events of one prompt with the batch's id and the prompt's index. It keeps the usage for the
// end.
func (m *merger) addLocked(cut *openai.Events, events []byte, index int, rec *observe.Record) *failure {
	m.buf = m.buf[:0]
	n := 0
	for e := range cut.Feed(events) {
		data := e.Data()
		if e.IsDone() || e.IsComment() || m.usage.Add(data) {
			continue
		}
		m.buf = append(m.buf, "data: "...)
		m.buf = openai.RewriteChunk(m.buf, data, m.id, index)
		m.buf = append(m.buf, "\n\n"...)
		n++
	}
	if n == 0 {
		return nil
	}
	return m.w.events(m.buf, n, rec)
}

// end sends the summed usage and the end marker. All streams have ended.
func (m *merger) end() *failure {
	n := 1
	m.buf = m.buf[:0]
	if usage := m.usage.Append(nil, m.id); len(usage) > 0 {
		m.buf = append(append(append(m.buf, "data: "...), usage...), "\n\n"...)
		n++
	}
	return m.w.events(append(m.buf, openai.Completions.EndMark()...), n, nil)
}
