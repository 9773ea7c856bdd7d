package orchestrator

import (
	"context"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/scoring"
)

// tokens estimates the length of the prompt. A form is a recording.
func (p *passthrough) tokens(perToken float64) int {
	if strings.HasPrefix(p.contentType, "multipart/") {
		return tokenizer.MediaTokens
	}
	return tokenizer.EstimateTokens(p.body, perToken)
}

// proxyWhole passes a generating request to one decode replica, with a booking there.
func proxyWhole(ctx context.Context, q *request) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	return passOn(ctx, q, p, "")
}

// encoded is a request for vectors or scores.
type encoded struct {
	openai.Encoding
	as *passthrough
}

// encode passes a request for vectors or scores to one decode replica, with a booking there.
func encode(ctx context.Context, q *request) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	p.encodes = true
	e := &encoded{as: p}
	if p.contentType == "application/json" { // a form cannot be compared with other requests
		e.Encoding = openai.Encoding{Path: q.path, Body: p.body}
	}
	return throughCache(ctx, q, p.model, e, encodeOn)
}

// encodeOn answers a request for vectors or scores.
func encodeOn(ctx context.Context, q *request, e *encoded) *failure {
	return passOn(ctx, q, e.as, "")
}

// passOn passes a request whose body has been read and cleaned. why is the reason why it is not split; "" if
// its path is never split.
func passOn(ctx context.Context, q *request, p *passthrough, why string) *failure {
	if q.connect.Traits().NoPlain {
		return endPassed(passedJob(q, p), unsplit(why))
	}
	if id := previousResponse(p.body); id != "" {
		if to := holder(ctx, q, id); to != nil {
			q.outcome.mode = "unsplit"
			if to.Member.Draining {
				return keeperDrains()
			}
			if model := modelAt(q, to, p.model); model != p.model {
				p.model, p.body = model, openai.WithModel(p.body, model)
			}
			return passToHolder(ctx, q, to, p)
		}
	}
	j := passedJob(q, p)
	var first *failure
	for {
		f := passOnce(ctx, q, j, p, why)
		if f != nil && f.phase == phasePlan && first != nil && first.own() {
			// No replica is left: the client gets an engine's answer.
			return endPassed(j, first.withNotRetried(retryNobody).heard(ctx))
		}
		if again, why := passesAgain(ctx, q, j, f, p); !again {
			return endPassed(j, f.withNotRetried(why).heard(ctx))
		}
		first = f
		p.resent = p.resent || f.unlucky()
		j.retried(f)
	}
}

// keeperDrains returns the failure of a request that continues a stored response, if the replica with this
// response gets no requests.
func keeperDrains() *failure {
	return refuse(kindNoReplica, site{
		phase: phasePlan, words: "The replica that keeps the response before this one is being drained.",
	})
}

// passedJob returns the job of a passed request, which needs one decode replica.
func passedJob(q *request, p *passthrough) *job {
	j := q.newJob(nil, 0)
	j.rec.Model = p.model
	j.count = p.tokens(q.cfg.Tokenizer.CharsPerToken)
	j.plan = planner.Request{
		ID: j.rec.ID, Model: p.model, Tokens: j.count, Sequences: max(p.samples, 1), LocalOK: true,
		Class: estimate.Class{Tenant: q.tenant}, Goals: scoring.Goals(q.goals),
	}
	return j
}

// endPassed records the end of a passed request.
func endPassed(j *job, f *failure) *failure {
	finish(j, f, nil)
	return f
}

// passesAgain decides whether a passed request that failed is passed to another replica. whyNot is the reason
// against it if another replica might have done better.
func passesAgain(
	ctx context.Context, q *request, j *job, f *failure, p *passthrough,
) (again bool, whyNot string) {
	switch {
	case f == nil:
		return false, ""
	case passable(q.w, f, p):
		return j.again(ctx, f)
	case f.mayRetry() && !q.w.begun:
		return false, retryUnsafe
	}
	return false, ""
}

// passToHolder passes a request to the only engine that has the response which the request names.
func passToHolder(ctx context.Context, q *request, to *fleet.Endpoint, p *passthrough) *failure {
	j := passedJob(q, p)
	j.rec.Mode, j.rec.Decode = "unsplit", string(to.Member.ID)
	j.rec.Attempts, j.rec.Reason = 1, "only this replica keeps the response before this one"
	p.unbooked = true
	f := q.orStale(ctx, forward(ctx, q, to, p, j.rec))
	if f == nil || f.kind != kindStale || !passable(q.w, f, p) || q.cfg.Retry.Attempts < 2 {
		return endPassed(j, f)
	}
	q.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	p.resent, j.rec.Attempts = true, 2
	return endPassed(j, forward(ctx, q, to, p, j.rec))
}

// passOnce books a replica for the request and passes the request.
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
	noteWhole(j, b, why)
	q.outcome.mode = j.rec.Mode
	b.DecodeLease.MarkSent(time.Now())
	to := q.fleet.Endpoint(b.Decode.ID)
	if to == nil {
		return leftPool(replica.Decode, b.Decode.ID)
	}
	began := time.Now()
	f = q.orStale(ctx, forward(ctx, q, to, p, j.rec))
	if f == nil || f.kind != kindStale {
		q.passedOn(b, f, began)
	}
	if f != nil {
		noteFailed(j.rec, b, f, j.start, began)
	}
	return f
}

// passable reports whether a passed request with this failure may be passed to another replica: either no
// engine did anything for it, or it may be asked twice. A passed request may have any effect, so only
// harmless attempts are repeated. If a kept connection was too old, an engine hardly read the request. If it
// did, it computes an answer that is not used, and a passed request has no transfer params. So the request is
// sent once more, unless it may have effects beyond its answer.
func passable(w *client, f *failure, p *passthrough) bool {
	switch {
	case w.begun || !f.mayRetry():
		return false
	case f.kind == kindUnreachable || f.kind == kindLeft || f.kind == kindMisplaced:
		return true
	case f.unlucky():
		return !p.acts && !p.resent
	case f.forgotten():
		// The path may be unknown there, or the response that should be continued.
		return strings.HasPrefix(openai.Message(f.reply.body), "The model")
	}
	return p.again
}

func noteWhole(j *job, b *planner.Booking, why string) {
	j.rec.Mode = "unsplit"
	j.rec.Decode = string(b.Decode.ID)
	j.rec.Prompt = j.count
	j.rec.Attempts = j.attempts.tries
	if b.Decision != nil {
		j.rec.Reason, j.rec.Decision = b.Decision.Reason, b.Decision
	}
	noteWhy(j.rec, why)
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
		f = forward(ctx, q, to, p, nil)
		if f == nil || !passable(q.w, f, p) || f.forgotten() || ctx.Err() != nil ||
			len(tried) >= q.cfg.Retry.Attempts {
			return f
		}
		q.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	}
}

// anyFor returns an engine that serves model, or else any engine, which will answer that it does not know the
// model.
func anyFor(of *fleet.Fleet, model string, skip func(*fleet.Endpoint) bool) *fleet.Endpoint {
	if to := of.Any(model, skip); to != nil {
		return to
	}
	return of.Any("", skip)
}
