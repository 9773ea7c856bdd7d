package orchestrator

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// passthrough is a request that goes whole to one replica, as it came but for transfer parameters, which
// never reach an engine.
type passthrough struct {
	body        []byte
	contentType string
	model       string
	stream      bool
	samples     int  // answers that it asks for
	encodes     bool // it asks for vectors or scores
	again       bool // an engine may be asked twice: nothing is made or changed by it
	acts        bool // an engine may do more for it than compute an answer
	resent      bool // a kept connection grew too old under it, so that it was sent once more
}

// tokens estimates how long the prompt is. A form is a recording.
func (p *passthrough) tokens(perToken float64) int {
	if strings.HasPrefix(p.contentType, "multipart/") {
		return tokenizer.MediaTokens
	}
	return tokenizer.EstimateTokens(p.body, perToken)
}

// readPassthrough reads and cleans a body that is not split.
func (q *request) readPassthrough() (*passthrough, *failure) {
	if q.r.Method == http.MethodGet {
		return &passthrough{again: true}, nil
	}
	raw, f := q.body()
	if f != nil {
		return nil, f
	}
	p := &passthrough{body: raw, contentType: q.r.Header.Get("Content-Type")}
	if media, params, err := mime.ParseMediaType(p.contentType); err == nil &&
		strings.HasPrefix(media, "multipart/") {
		if hidesTransfer(raw, params["boundary"]) {
			return nil, badRequest(&openai.BadRequest{Message: "Transfer parameters are not taken from clients."})
		}
		// A charset could hide the names from us: vLLM's server reads a form's values in the one that is named,
		// UTF-7 as well.
		p.contentType = mime.FormatMediaType(media, map[string]string{"boundary": params["boundary"]})
		return p, nil
	}
	p.contentType = "application/json" // an engine reads every other body as JSON, whatever it is called
	if len(raw) == 0 {
		return p, nil
	}
	clean, err := openai.Sanitize(raw, q.limits())
	if err != nil {
		return nil, badRequest(err)
	}
	p.body = clean
	seen := openai.Peek(clean)
	p.model = seen.Model
	p.stream = seen.Stream
	p.samples = seen.Samples
	if most := q.cfg.Limits.Samples; seen.Samples > most {
		return nil, badRequest(&openai.BadRequest{Message: openai.TooManySamples("n", most), Param: "n"})
	}
	if p.model, f = q.modelOr(p.model); f != nil {
		return nil, f
	}
	return p, nil
}

// proxyWhole passes a generating request to one decode replica, with room booked there.
func proxyWhole(ctx context.Context, q *request) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	return pass(ctx, q, p, "")
}

// encoded is a request for vectors or scores.
type encoded struct {
	openai.Encoding
	as *passthrough
}

// encode passes a request for vectors or scores to one decode replica, with room booked there.
func encode(ctx context.Context, q *request) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	p.encodes = true
	e := &encoded{as: p}
	if p.contentType == "application/json" { // a form asks nothing that can be compared
		e.Encoding = openai.Encoding{Path: q.path, Body: p.body}
	}
	return cached(ctx, q, p.model, e, (*request).encode)
}

func (q *request) encode(ctx context.Context, e *encoded) *failure {
	return pass(ctx, q, e.as, "")
}

// pass does so with a body that has been read and cleaned; why is what keeps it from being split, "" where
// the path is never split.
func pass(ctx context.Context, q *request, p *passthrough, why string) *failure {
	if id := previousResponse(p.body); id != "" {
		if to := q.holder(ctx, id); to != nil {
			q.outcome.mode = "unsplit"
			if to.Member.Draining {
				return refuse(kindNoReplica, site{
					phase: phasePlan, words: "The replica that keeps the response before this one is being drained.",
				})
			}
			return q.goOn(ctx, to, p)
		}
	}
	j := q.newJob(nil, 0)
	j.rec.Model = p.model
	j.count = p.tokens(q.cfg.Tokenizer.CharsPerToken)
	j.plan = planner.Request{
		ID: j.rec.ID, Model: j.anyModel(), Tokens: j.count, Sequences: max(p.samples, 1), LocalOK: true,
		Class: estimate.Class{Tenant: q.tenant},
	}
	var first *failure
	for {
		f := passOnce(ctx, q, j, p, why)
		if f != nil && f.phase == phasePlan && first != nil && first.own() {
			// No replica is left: the client gets what an engine said.
			return j.ended(first.withNotRetried(retryNobody).heard(ctx))
		}
		if again, why := passesAgain(ctx, q, j, f, p); !again {
			return j.ended(f.withNotRetried(why).heard(ctx))
		}
		first = f
		p.resent = p.resent || f.unlucky()
		j.retried(f)
	}
}

// ended closes the books of a passed request.
func (j *job) ended(f *failure) *failure {
	j.finish(f, nil)
	return f
}

// passesAgain decides whether a passed request that failed is passed to another replica. whyNot is the reason
// if another replica might have done better.
func passesAgain(
	ctx context.Context, q *request, j *job, f *failure, p *passthrough,
) (again bool, whyNot string) {
	switch {
	case f == nil:
		return false, ""
	case q.passable(f, p):
		return j.again(ctx, f)
	case f.mayRetry() && !q.w.begun:
		return false, retryUnsafe
	}
	return false, ""
}

// goOn passes a request to the only engine that can go on with what it names.
func (q *request) goOn(ctx context.Context, to *fleet.Endpoint, p *passthrough) *failure {
	f := q.orStale(ctx, q.forward(ctx, to, p, nil))
	if f == nil || f.kind != kindStale || !q.passable(f, p) || q.cfg.Retry.Attempts < 2 {
		return f
	}
	q.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	p.resent = true
	return q.forward(ctx, to, p, nil)
}

// passOnce books room for the request and passes it.
func passOnce(ctx context.Context, q *request, j *job, p *passthrough, why string) *failure {
	j.attempts.tries++
	j.rec.Attempts = j.attempts.tries
	b, f := j.book(ctx)
	if f != nil {
		return f
	}
	defer func() {
		b.Release(time.Now())
		q.queue.wake()
	}()
	j.noteWhole(b, why)
	q.outcome.mode = j.rec.Mode
	b.DecodeLease.MarkSent(time.Now())
	to := q.fleet.Endpoint(b.Decode.ID)
	if to == nil {
		return left(replica.Decode, b.Decode.ID)
	}
	began := time.Now()
	f = q.orStale(ctx, q.forward(ctx, to, p, j.rec))
	if f == nil || f.kind != kindStale {
		q.passedOn(b, f, began)
	}
	if f != nil {
		noteFailed(j.rec, b, f, j.start, began)
	}
	return f
}

// passable reports whether a passed request that failed so may be passed to another replica: nothing of it
// was taken, or it may be asked twice. What is passed may do anything, and only harmless attempts are
// repeated. Under a kept connection that grew too old there was hardly an engine that read it. If there was,
// it computes an answer for nobody: no transfer params are in what is passed. So it is sent once more, unless
// more than an answer may come of it.
func (q *request) passable(f *failure, p *passthrough) bool {
	switch {
	case q.w.begun || !f.mayRetry():
		return false
	case f.kind == kindUnreachable || f.kind == kindLeft || f.kind == kindMisplaced:
		return true
	case f.unlucky():
		return !p.acts && !p.resent
	case f.forgotten():
		// Not the path, nor a response that was to be gone on with.
		return strings.HasPrefix(openai.Message(f.answer.body), "The model")
	}
	return p.again
}

// left is a replica that went while it was being chosen.
func left(role replica.Role, id replica.ID) *failure {
	return refuse(kindLeft, site{phase: phase(role.String()), at: id})
}

// anyModel is the model of a passed request, or that of any engine for a form, whose fields are not read.
func (j *job) anyModel() string {
	if j.rec.Model != "" {
		return j.rec.Model
	}
	if to := j.fleet.Any("", nil); to != nil {
		return to.Member.Facts.Model
	}
	return ""
}

func (j *job) noteWhole(b *planner.Booking, why string) {
	j.rec.Mode = "unsplit"
	j.rec.Decode = string(b.Decode.ID)
	j.rec.Prompt = j.count
	j.rec.Attempts = j.attempts.tries
	if b.Decision != nil {
		j.rec.Reason, j.rec.Decision = b.Decision.Reason, b.Decision
	}
	j.noteWhy(why)
}

// anyEngine passes a question that needs no blocks to any engine.
func anyEngine(ctx context.Context, q *request) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	q.outcome.mode, p.again = "ask", true
	tried := map[replica.ID]bool{}
	for {
		to := anyFor(q.fleet, p.model, func(r *fleet.Endpoint) bool { return tried[r.Member.ID] })
		if to == nil && f != nil {
			return f
		}
		if to == nil {
			return refuse(kindNoReplica, site{phase: phasePlan})
		}
		tried[to.Member.ID] = true
		f = q.forward(ctx, to, p, nil)
		if f == nil || !q.passable(f, p) || f.forgotten() || ctx.Err() != nil ||
			len(tried) >= q.cfg.Retry.Attempts {
			return f
		}
		q.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	}
}

// anyFor finds an engine that serves model, or else any: it will say itself that it does not know the model.
func anyFor(of *fleet.Fleet, model string, skip func(*fleet.Endpoint) bool) *fleet.Endpoint {
	if to := of.Any(model, skip); to != nil {
		return to
	}
	return of.Any("", skip)
}
