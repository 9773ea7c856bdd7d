package orchestrator

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"tandem/internal/openai"
	"tandem/internal/replica"
	"tandem/orchestrator/planner"
)

// job is one prompt on its way to an answer: the whole request, or one prompt of a batch. One goroutine owns
// it.
type job struct {
	q     *request
	req   *openai.Request
	id    string // of the job; the request's id, with the prompt's index behind it in a batch
	index int    // of the prompt in a batch
	rec   *Record

	ids   *promptIDs // the prompt's tokens, nil when unknown
	count int        // tokens of the prompt, estimated when ids is nil
	whole string     // why it cannot be split, "" when it can
	plan  planner.Request

	tries      int
	faults     planner.FailedAttempts // what its failed attempts were held against
	budgeted   bool                   // it holds a place in the retry budget
	failedAt   replica.ID             // where the attempt before failed
	failedWhen string                 // in which phase
	avoided    []avoided              // whom it is not planned on for its failures, oldest first
	// Two replicas have failed alike, and said so: only one that was not asked yet can tell whose fault it is.
	third bool

	want *openai.Continuation // of an answer whose tokens are kept, so that another engine can go on with it
	// What the client has got already, where this is the job of the rest of an answer.
	rest   *openai.Delivered
	restOf *job             // and the job of the whole
	began  *replica.Replica // where the answer broke off
	kept   int              // and how many tokens of the answer its prompt holds
}

// newJob begins a job. path is the front-door path it came through.
func (q *request) newJob(req *openai.Request, index int) *job {
	j := &job{q: q, req: req, id: q.id, index: index}
	if req != nil && req.Batched {
		j.id += "-" + strconv.Itoa(index)
	}
	j.rec = newRecord(j.id, q.path, q.start, q.snap.inForce)
	j.rec.ClientID = q.clientID
	if q.rec == nil {
		q.rec = j.rec
	}
	if req != nil {
		if req.N > 1 {
			j.rec.Samples = req.N
		}
		j.rec.Model, j.rec.Streamed = req.Model, req.Stream
	}
	return j
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

// serve gets the answer, lets deliver give it to the client, and closes the books behind it, a panic
// included.
func (j *job) serve(ctx context.Context, deliver func(a *answer) *failure) (f *failure) {
	a, f := j.answer(ctx)
	if f != nil {
		j.finish(f, nil)
		return f
	}
	f = &failure{phase: "stream", owner: "us", kind: "panic", status: http.StatusInternalServerError}
	defer func() {
		a.settle(f)
		j.finish(f, a)
	}()
	f = deliver(a)
	return f
}

// finish closes the books of a job: what was delivered, and the record for people.
func (j *job) finish(f *failure, a *answer) {
	j.rec.Phases.Total = ms(time.Since(j.q.start))
	j.rec.Outcome, j.rec.Status = "ok", http.StatusOK
	if f != nil {
		j.rec.Outcome, j.rec.Status = f.kind, f.status
		if j.rec.Reason == "" {
			j.rec.Reason = f.Error()
		}
	}
	if a != nil {
		j.rec.Output = a.kept + a.output
		if a.promptTokens > 0 {
			j.rec.Prompt = a.promptTokens - a.kept
		}
		j.countTokens(a, f)
		if f == nil {
			j.q.o.captures.note(j)
		}
	}
	if j.q.o.traced {
		j.q.span.SetAttributes(attrModel.String(j.rec.Model))
	}
	j.q.o.m.took(j.rec)
	j.q.o.ring.add(j.rec)
}
