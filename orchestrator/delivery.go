package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// delivery gives the answer of one job to the client. It has a current answer: that of the engine that
// generates now. Where a stream breaks off and another engine continues, that engine's answer becomes the
// current one, and the client sees a pause. One goroutine owns a delivery. It ends in settle.
type delivery struct {
	job     *job // the client's own job, also where the current answer is that of a rest
	current *answer
}

// stream gives the client the answer to its end, whichever engines it comes from.
func (d *delivery) stream(ctx context.Context, to eventSender) *failure {
	f := deliver(ctx, d.next, to)
	if f != nil && f != d.current.end.bad { // which others may know already
		f = f.withNotContinued(d.job.rec.NotContinued)
	}
	return f
}

// next is the [eventSource] of the current answer. Where its engine breaks off and another engine continues,
// the events come from that engine.
func (d *delivery) next() (*eventReader, []byte, error) {
	for {
		a := d.current
		out, err := a.read()
		if err == nil && a.end.bad != nil {
			d.ownError()
		}
		if err == nil || errors.Is(err, io.EOF) {
			return &a.eventReader, out, err
		}
		last := a.end.last
		if d.goOn(err) {
			continue
		}
		if held := a.releaseNamed(nil, a.usage.unasked.name); len(held) > 0 { // and then that it broke off
			a.end.died, a.given = err, nil
			return &a.eventReader, held, nil
		}
		if f, ok := errors.AsType[*failure](err); ok && last != nil { // the engine's own words go through
			a.flow.events++
			a.end.bad = f.withNotContinued(d.job.rec.NotContinued)
			return &a.eventReader, last, nil
		}
		return &a.eventReader, nil, err
	}
}

// settle ends the delivery, well or not: it closes the books of the current answer and ends the attempt that
// made it.
func (d *delivery) settle(f *failure) {
	a, now := d.current, time.Now()
	h, j := a.h, a.j
	a.span.Failed(f.onSpan())
	a.close()
	if f == nil && !a.first.IsZero() {
		// The events of a rest are those of two engines.
		if j.req.Stream && j.rest.delivered == nil && j.tellsSteps() {
			end := a.flow.progress()
			end.Tokens = a.usage.output
			h.b.DecodeLease.Progress(end, now)
		}
		first, whole := a.first.Sub(j.start), a.decoded(now).Sub(j.start)
		h.b.Finish(a.usage.output, first, whole, now)
	}
	switch {
	case f == nil:
		a.prove()
	case !a.held:
		j.failedOn(h.b, f, j.fingerprint(), j.start, now) // how long it went well is no loss
	}
	h.end()
	if !a.first.IsZero() {
		rememberText(j, h.b)
	}
}

// goOn lets another engine continue a stream that broke off for this reason, and reports whether the client
// gets more: from that engine, whose answer is the current one then, or the end that was missing. If not, the
// current answer stays, and the client hears the same as if no engine had been asked.
func (d *delivery) goOn(err error) bool {
	a, root := d.current, d.job
	ctx := a.h.clock.parent
	switch {
	case ctx.Err() != nil:
		return false
	case a.given == nil:
		_, why := root.continuation()
		d.notContinued(why)
		return false
	case errors.Is(err, openai.ErrEventTooLong):
		d.notContinued(eventTooLong)
		return false
	}
	began := time.Now()
	blamed := a.blameFor(ctx, err)
	a.h.end()
	outcome, f := d.replace(ctx, err, blamed)
	if ctx.Err() != nil {
		outcome = clientLeft
	}
	root.m.Failures.Continued.WithLabelValues(outcome).Inc()
	attrs := []any{
		"id", root.rec.ID, "outcome", outcome, "replica", root.rec.Decode, "tokens", d.current.given.Tokens(),
		"took", time.Since(began), "error", err.Error(),
	}
	if f != nil {
		attrs = append(attrs, "next", f.Error())
	}
	if why := d.whyNot(outcome, f); why != "" {
		d.notContinued(why)
		attrs = append(attrs, "not_continued", why)
	}
	root.log.Info("stream broke off", attrs...)
	return outcome == wentOn || outcome == wasComplete
}

// replace finds the engine that continues and makes its answer the current one.
func (d *delivery) replace(
	ctx context.Context, err error, blamed planner.FailedAttempt,
) (outcome string, f *failure) {
	if outcome := d.endsHere(ctx, err, blamed); outcome != "" {
		return outcome, nil
	}
	a, root := d.current, d.job
	ctx, span := root.spans.Step(ctx, "continue")
	defer span.End()
	if span.On() {
		span.Set(observe.AttrReplica.String(string(a.to.Member.ID)), observe.AttrTokens.Int(a.given.Tokens()))
	}
	rest, f := d.restJob(blamed)
	if f != nil {
		return notPossible, f
	}
	b, f := beginRest(ctx, rest)
	switch {
	case f != nil && f.kind == kindDiverged:
		return diverged, f
	case f != nil:
		return nobody, f
	}
	root.rec.Continued = append(root.rec.Continued, string(b.to.Member.ID))
	b.flow.events += a.flow.gave
	b.flow.gave = a.flow.gave
	d.current = b
	return wentOn, nil
}

// endsHere is the outcome where no other engine has anything to go on with, or none may; "" where one may.
func (d *delivery) endsHere(ctx context.Context, err error, blamed planner.FailedAttempt) (outcome string) {
	a, root := d.current, d.job
	switch {
	case errors.Is(err, openai.ErrDiverged):
		return diverged
	case a.endHeld():
		return wasComplete
	case a.given.Complete(root.req.IncludeUsage):
		a.endWith(nil)
		return wasComplete
	case a.given.Resumable() != "":
		return notPossible
	case len(root.rec.Continued) >= mostContinued:
		return tooOften
	case !mayGoOn(ctx, root, blamed):
		return noBudget
	}
	return ""
}

// restJob makes the job of the rest of the current answer.
func (d *delivery) restJob(blamed planner.FailedAttempt) (*job, *failure) {
	a, root := d.current, d.job
	cached := unknownCache
	if a.split() {
		cached = a.usage.cached
	}
	left := a.given.Clone()
	ids, done := left.Resume(cached)
	// an engine says one more whatever it is asked for
	if most := root.req.MaxTokens; most > 0 && done >= most {
		return nil, refuse(kindNothingLeft, site{phase: phaseStream})
	}
	raw := openai.AppendIDs(nil, ids)
	body := root.req.ContinueFrom(raw, done)
	body.Set("return_token_ids", []byte("true"))
	req, err := openai.Parse(root.req.Kind, body.Append(nil), openai.Limits{})
	if err != nil {
		return nil, refuse(kindRestUnasked, site{phase: phaseStream, err: err})
	}
	of := a.to.Member.Release()
	of.Version = "" // no template takes part: any version will do
	j := &job{
		env: root.env, snapshot: root.snapshot, origin: root.origin, req: req,
		ids:   &promptIDs{legIDs: legIDs{ids, raw}, of: of, exact: true},
		count: len(ids), rest: restOfAnswer{delivered: left, root: root, began: &a.to.Member, kept: done},
		attempts: attempts{faults: planner.FailedAttempts{blamed}},
	}
	id := root.rec.ID + "-c" + strconv.Itoa(len(root.rec.Continued)+1)
	j.rec = observe.NewRecord(id, root.rec.Path, time.Now(), root.inForce)
	j.rec.Model = root.rec.Model
	j.prepare()
	avoidForRest(j, a.to.Member.ID)
	return j, nil
}

// notContinued notes why no engine continues the answer. The first reason stays.
func (d *delivery) notContinued(why string) {
	d.job.rec.NotContinued = cmp.Or(d.job.rec.NotContinued, why)
}

// whyNot is the reason where letting another engine go on came to this outcome, "" where none is to be told.
func (d *delivery) whyNot(outcome string, f *failure) string {
	switch {
	case outcome == wentOn, outcome == wasComplete, outcome == clientLeft:
		return ""
	case outcome == notPossible && f == nil:
		return d.current.given.Resumable()
	case outcome == notPossible && f.kind == kindNothingLeft:
		return nothingLeft
	}
	return outcome
}

// ownError notes that the engine's own error event goes through, after which no engine continues.
func (d *delivery) ownError() {
	a := d.current
	if a.end.bad.owner() == ownerClient {
		return
	}
	why := engineRefused
	if a.given == nil {
		_, why = d.job.continuation()
	}
	d.notContinued(why)
	a.end.bad = a.end.bad.withNotContinued(d.job.rec.NotContinued)
}

// serveJob gets the answer, lets give deliver it to the client, and closes the books behind it, a panic
// included.
func serveJob(ctx context.Context, j *job, give func(d *delivery) *failure) (f *failure) {
	a, f := answerJob(ctx, j)
	if f != nil {
		finish(j, f, nil)
		return f
	}
	d, panics := &delivery{job: j, current: a}, true
	defer func() {
		if panics {
			f = refuse(kindPanic, site{phase: phaseStream})
		}
		d.settle(f)
		finish(j, f, d.current)
	}()
	f = give(d)
	panics = false
	return f
}

// finish closes the books of a job: what was delivered, and the record for people.
func finish(j *job, f *failure, a *answer) {
	j.rec.Phases.Total = ms(time.Since(j.start))
	j.rec.Outcome, j.rec.Status = "ok", http.StatusOK
	j.rec.Prompt = cmp.Or(j.rec.Prompt, j.count) // there may have been no plan
	if f != nil {
		j.rec.Outcome, j.rec.Status = f.name(), f.reply.status
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
		countTokens(j, f, a.split())
		if f == nil {
			j.captures.Note(func() observe.Served { return servedBy(j) })
		}
	}
	if f == nil {
		j.rec.Goals = judged(j)
	}
	if j.spans.On() {
		j.span.SetAttributes(observe.AttrModel.String(j.rec.Model))
	}
	if a != nil || f == nil || j.rec.Output > 0 {
		charge(j, a)
	}
	j.m.Took(j.rec)
	j.ring.Add(j.rec)
	j.admin.Ended(j.rec)
}
