package orchestrator

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// job is one prompt on its way to an answer: the whole request, or one prompt of a batch. One goroutine owns
// it.
//
// Long: what it embeds is what each step needs of the router, of the configuration and of the request.
type job struct {
	*env
	*snapshot
	*origin
	req *openai.Request
	of  ofBatch
	rec *observe.Record // its id is that of the job

	ids   *promptIDs // the prompt's tokens, nil when unknown
	count int        // tokens of the prompt, estimated when ids is nil
	whole string     // why it cannot be split, "" when it can
	plan  planner.Request

	attempts attempts

	want *openai.Continuation // of an answer whose tokens are kept, so that another engine can go on with it
	rest restOfAnswer
}

// ofBatch is a job's relation to its batch; zero if there is one prompt.
type ofBatch struct {
	index int // of the prompt
	batch *batchState
	// Another prompt of the batch came to the queue before this one: a batch is taken or refused as a whole.
	follows bool
}

// batchState is what the prompts of one batch know of each other.
type batchState struct {
	came  atomic.Bool // a prompt came to the queue
	begun atomic.Bool // a prompt has had room
}

// attempts is what a job has tried so far, and what another attempt has to know of that.
type attempts struct {
	tries      int
	faults     planner.FailedAttempts // what those that failed were held against
	budgeted   bool                   // the job holds a place in the retry budget
	failedAt   replica.ID             // where the newest that failed did
	failedWhen phase                  // in which phase
	avoided    []avoided              // on whom the job is not planned for its failures, oldest first
	// Two replicas have failed alike, and said so: only one that was not asked yet can tell whose fault it is.
	third bool
}

// restOfAnswer is what the job of the rest of an answer goes on with; zero for the job of a whole one.
type restOfAnswer struct {
	delivered *openai.Delivered // what the client has got already
	root      *job              // of the whole answer
	began     *replica.Replica  // where the answer broke off
	kept      int               // tokens of the answer that the prompt of the rest holds
}

// answer runs the job until the engine that will generate has begun to answer well: its status is 200 and, in
// a stream, the first content is there. Whoever gets the answer must close it. Failed attempts are repeated
// elsewhere as long as the retry rules allow.
func (j *job) answer(ctx context.Context) (*answer, *failure) {
	if f := j.tokenize(ctx); f != nil {
		return nil, f
	}
	j.follow()
	j.prepare()
	return j.try(ctx)
}

// serve gets the answer, lets give deliver it to the client, and closes the books behind it, a panic
// included.
func (j *job) serve(ctx context.Context, give func(d *delivery) *failure) (f *failure) {
	a, f := j.answer(ctx)
	if f != nil {
		j.finish(f, nil)
		return f
	}
	f = refuse(kindPanic, site{phase: phaseStream})
	d := &delivery{job: j, current: a}
	defer func() {
		d.settle(f)
		j.finish(f, d.current)
	}()
	f = give(d)
	return f
}

// finish closes the books of a job: what was delivered, and the record for people.
func (j *job) finish(f *failure, a *answer) {
	j.rec.Phases.Total = ms(time.Since(j.start))
	j.rec.Outcome, j.rec.Status = "ok", http.StatusOK
	j.rec.Prompt = cmp.Or(j.rec.Prompt, j.count) // there may have been no plan
	if f != nil {
		j.rec.Outcome, j.rec.Status = f.name(), f.answer.status
		j.rec.NotRetried = f.notRetried
		j.rec.Prompt = cmp.Or(f.counted(), j.rec.Prompt)
		if j.rec.Reason == "" {
			j.rec.Reason = f.Error()
		}
	}
	if a != nil {
		kept := a.j.rest.kept
		j.rec.Output = kept + a.usage.output
		if a.usage.promptTokens > 0 {
			j.rec.Prompt = max(0, a.usage.promptTokens-kept)
		}
		j.countTokens(a, f)
		if f == nil {
			j.captures.Note(j.served)
		}
	}
	if j.spans.On() {
		j.span.SetAttributes(observe.AttrModel.String(j.rec.Model))
	}
	j.m.Took(j.rec)
	j.ring.Add(j.rec)
	j.admin.Ended(j.rec)
}

// body is the client's own request, or this job's prompt from it.
func (j *job) body() *openai.Edit {
	if j.req.Batched && j.req.Unsplittable == "" {
		return j.askIDs(j.req.EditPrompt(j.of.index))
	}
	return j.askIDs(j.req.Edit())
}

// tellsSteps reports whether the events of the job's stream come as its engine's steps do. A parser of tools
// holds tokens back, unless their ids are asked for.
func (j *job) tellsSteps() bool { return !j.req.Tools || j.want != nil }

// leg opens the span of a leg of the job.
func (j *job) leg(ctx context.Context, leg string, to *replica.Replica) (context.Context, observe.LegSpan) {
	return j.spans.Leg(ctx, leg, j.rec.Path, j.rec.Model, to, j.req)
}
