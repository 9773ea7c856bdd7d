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

// delivery gives the answer of one job to the client. Its current answer is that of the engine that generates
// now. If a stream breaks off and another engine continues, that engine's answer becomes the current one, and
// the client sees a pause. One goroutine owns a delivery. It ends in settle.
type delivery struct {
	job     *job // the client's own job, also while the current answer is a rest
	current *answer
}

// stream gives the client the answer to its end, from all engines that make it.
func (d *delivery) stream(ctx context.Context, to eventSender) *failure {
	f := deliver(ctx, d.next, to)
	if f != nil && f != d.current.end.bad { // then the failure may be known to others already
		f = f.withNotContinued(d.job.rec.NotContinued)
	}
	return f
}

// next is the [eventSource] of the current answer. If its engine breaks off and another engine continues, the
// events come from that engine.
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
		if f, ok := errors.AsType[*failure](err); ok && last != nil { // the engine's own event
			a.flow.events++
			a.end.bad = f.withNotContinued(d.job.rec.NotContinued)
			return &a.eventReader, last, nil
		}
		return &a.eventReader, nil, err
	}
}

// settle ends the delivery, for good and bad ends: it records the result of the current answer, and ends the
// attempt that made it.
func (d *delivery) settle(f *failure) {
	a, now := d.current, time.Now()
	h, j := a.h, a.j
	a.span.Failed(f.onSpan())
	a.close()
	if f == nil && !a.first.IsZero() {
		// The events of a continued answer come from two engines.
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
		j.failedOn(h.b, f, j.fingerprint(), j.start, now) // the time before the failure is not lost
	}
	h.end()
	if !a.first.IsZero() {
		rememberText(j, h.b)
	}
}

// goOn lets another engine continue a stream that broke off with err. It reports whether the client gets
// more: the answer of another engine, which becomes the current one, or the missing end. Otherwise the
// current answer stays, and the client gets the same error as without the attempt.
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

// endsHere returns the outcome if no other engine can or may continue; "" if one may.
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

// restJob makes the job for the rest of the current answer.
func (d *delivery) restJob(blamed planner.FailedAttempt) (*job, *failure) {
	a, root := d.current, d.job
	cached := unknownCache
	if a.split() {
		cached = a.usage.cached
	}
	left := a.given.Clone()
	ids, done := left.Resume(cached)
	// An engine always generates one more token, whatever the limit is.
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
	of.Version = "" // no template is used, so any version will do
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

// notContinued records why no engine continues the answer. The first reason stays.
func (d *delivery) notContinued(why string) {
	d.job.rec.NotContinued = cmp.Or(d.job.rec.NotContinued, why)
}

// whyNot returns the reason for an outcome of goOn that is shown to people; "" for no reason.
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

// ownError records that the engine's own error event was passed on. After that no engine continues.
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

// serveJob gets the answer, calls give to deliver it to the client, and records the result, even after a
// panic.
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

// finish records the result of a job: what was delivered, and the record for people.
func finish(j *job, f *failure, a *answer) {
	j.rec.Phases.Total = ms(time.Since(j.start))
	j.rec.Outcome, j.rec.Status = "ok", http.StatusOK
	j.rec.Prompt = cmp.Or(j.rec.Prompt, j.count) // a job may have had no plan
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
