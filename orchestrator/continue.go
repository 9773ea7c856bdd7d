package orchestrator

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A stream whose engine dies behind the first content is not over: the prompt's tokens and those of the
// answer so far are the prompt of a request to another engine, planned like every other, whose answer is the
// rest. The client sees a pause.
//
// The job of the rest is one of its own, with the rest of the limits and a booking of its own. Its answer
// takes the place of the one that broke off.

// mostContinued is how often one answer goes on elsewhere: a request that ends engines must not end many.
const mostContinued = 3

// follow has the tokens of the job's answer kept, where the configuration and the request allow that another
// engine goes on with it.
func (j *job) follow() {
	if want, why := j.continuation(); why == "" {
		kept := want // memory for those alone who need it
		j.want = &kept
	}
}

// given begins the record of what the client gets of one attempt's answer; nil where nobody will go on with
// it.
func (j *job) given() *openai.Delivered {
	switch {
	case j.rest.delivered != nil:
		return j.rest.delivered.Clone()
	case j.want != nil:
		return openai.NewDelivered(j.req.Kind, *j.want)
	}
	return nil
}

// askIDs asks the engine for the token ids that the record needs. The client does not see them unless it
// asked too.
func (j *job) askIDs(body *openai.Edit) *openai.Edit {
	if j.want != nil && !j.want.ReturnIDs {
		body.Set("return_token_ids", []byte("true"))
	}
	return body
}

// first is the client's own job, of which this may do the rest.
func (j *job) first() *job {
	if j.rest.of != nil {
		return j.rest.of
	}
	return j
}

// Outcomes of streams that broke off.
const (
	wentOn      = "continued"
	wasComplete = "complete"     // but for the end marker
	notPossible = "not_possible" // the answer cannot be split here
	tooOften    = "too_often"
	noBudget    = "no_budget"
	diverged    = "diverged"
	nobody      = "failed"
	clientLeft  = "client_gone"
)

// goOn lets another engine go on with a stream that broke off for this reason, and reports whether it does:
// then a is the answer of that engine. If not, a is as it was, and what the client hears is the same as if
// nobody had tried.
func (a *answer) goOn(err error) bool {
	ctx, root := a.h.clock.parent, a.h.j.first()
	switch {
	case ctx.Err() != nil:
		return false
	case a.given == nil:
		_, why := root.continuation()
		a.notContinued(why)
		return false
	case errors.Is(err, openai.ErrEventTooLong):
		a.notContinued(eventTooLong)
		return false
	}
	began := time.Now()
	blamed := a.blameFor(ctx, err)
	a.close()
	a.h.release()
	outcome, f := a.replace(ctx, root, err, blamed)
	if ctx.Err() != nil {
		outcome = clientLeft
	}
	o := root.q.o
	o.m.Failures.Continued.WithLabelValues(outcome).Inc()
	attrs := []any{
		"id", root.id, "outcome", outcome, "replica", root.rec.Decode, "tokens", a.given.Tokens(), "took",
		time.Since(began), "error", err.Error(),
	}
	if f != nil {
		attrs = append(attrs, "next", f.Error())
	}
	if why := a.whyNot(outcome, f); why != "" {
		a.notContinued(why)
		attrs = append(attrs, "not_continued", why)
	}
	o.log.Info("stream broke off", attrs...)
	return outcome == wentOn || outcome == wasComplete
}

// blameFor holds the end of the stream against its engine, once.
func (a *answer) blameFor(ctx context.Context, err error) (blamed planner.FailedAttempt) {
	blamed.Booking = a.h.b
	if a.held || errors.Is(err, openai.ErrDiverged) { // other kernels may round in another way
		a.held = true
		return blamed
	}
	a.held = true
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = legFailed(ctx, "stream", a.to.Member.ID, err)
	}
	a.span.failed(f)
	j := a.h.j
	blamed.Fault = j.q.o.failedOn(a.h.b, f, j.fingerprint(), j.q.start, time.Now()).Fault
	return blamed
}

// replace finds the engine that goes on and makes a its answer.
func (a *answer) replace(
	ctx context.Context, root *job, err error, blamed planner.FailedAttempt,
) (outcome string, f *failure) {
	if outcome := a.endsHere(ctx, root, err, blamed); outcome != "" {
		return outcome, nil
	}
	ctx, span := root.q.o.step(ctx, "continue")
	defer span.end()
	if span.on() {
		span.span.SetAttributes(attrReplica.String(string(a.to.Member.ID)), attrTokens.Int(a.given.Tokens()))
	}
	rest, f := a.restJob(root, blamed)
	if f != nil {
		return notPossible, f
	}
	b, f := rest.begin(ctx)
	switch {
	case f != nil && f.kind == kindDiverged:
		return diverged, f
	case f != nil:
		return nobody, f
	}
	root.rec.Continued = append(root.rec.Continued, string(b.to.Member.ID))
	b.flow.events += a.flow.gave
	b.flow.gave = a.flow.gave
	*a = *b
	return wentOn, nil
}

// endsHere is the outcome where no other engine has anything to go on with, or none may; "" where one may.
func (a *answer) endsHere(
	ctx context.Context, root *job, err error, blamed planner.FailedAttempt,
) (outcome string) {
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
	case !root.mayGoOn(ctx, blamed):
		return noBudget
	}
	return ""
}

// endWith lets the client get these events and the end marker, and nothing more.
func (a *answer) endWith(events []byte) {
	a.buffers.head, a.end.over = append(events, a.kind.EndMark()...), true
	a.flow.events++
}

// mayGoOn counts the request among those that are tried again, unless the replica is known to be bad or does
// not work any more: then going on elsewhere multiplies no work, however many streams it had.
func (j *job) mayGoOn(ctx context.Context, blamed planner.FailedAttempt) bool {
	to := j.q.o.fleet.Endpoint(blamed.Booking.Decode.ID)
	return to == nil || !to.Up() || j.q.o.planner.KnownBad(blamed.Booking, blamed.Fault, time.Now()) ||
		j.takeBudget() || j.q.o.dead(ctx, to)
}

// dead asks an engine whether it still works.
func (o *Orchestrator) dead(ctx context.Context, to *fleet.Endpoint) bool {
	err := to.Works(ctx)
	o.fleet.Failed(to.Member.ID, err)
	return err != nil
}

// restJob makes the job of the rest of a's answer.
func (a *answer) restJob(root *job, blamed planner.FailedAttempt) (*job, *failure) {
	cached := unknownCache
	if a.split {
		cached = a.usage.cached
	}
	left := a.given.Clone()
	ids, done := left.Resume(cached)
	if most := root.req.MaxTokens; most > 0 && done >= most { // an engine says one more whatever it is asked for
		return nil, refuse(kindNothingLeft, site{phase: "stream"})
	}
	raw := openai.AppendIDs(nil, ids)
	body := root.req.ContinueFrom(raw, done)
	body.Set("return_token_ids", []byte("true"))
	req, err := openai.Parse(root.req.Kind, body.Append(nil), openai.Limits{})
	if err != nil {
		return nil, refuse(kindRestUnasked, site{phase: "stream", err: err})
	}
	j := &job{
		q: root.q, req: req, id: root.id + "-c" + strconv.Itoa(len(root.rec.Continued)+1),
		// No template takes part: any version will do.
		ids: &promptIDs{
			legIDs: legIDs{ids, raw}, of: replica.Release{Root: a.to.Member.Facts.Root}, exact: true,
		},
		count: len(ids), rest: restOfAnswer{delivered: left, of: root, began: &a.to.Member, kept: done},
		attempts: attempts{faults: planner.FailedAttempts{blamed}},
	}
	j.rec = observe.NewRecord(j.id, root.rec.Path, time.Now(), root.rec.Config)
	j.rec.Model = root.rec.Model
	j.prepare()
	j.avoidForRest(a.to.Member.ID)
	return j, nil
}

// avoidForRest keeps the job of a rest from replicas that would begin the answer anew, and from the one where
// it broke off, if there is another.
func (j *job) avoidForRest(broken replica.ID) {
	// No other carries the ids of a chat.
	if j.req.Kind != openai.Completions && j.q.snap.connect.Order() != connector.Sequential {
		j.plan.SplitOK = false
	}
	for id, r := range j.q.o.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && !j.goesOnAt(&r.Member) {
			j.plan.AvoidDecode = append(j.plan.AvoidDecode, id)
		}
	}
	j.avoid(broken, replica.Decode, true) // it may be asked again where it is the last
	j.attempts.failedWhen, j.attempts.failedAt = "decode", broken
}

// begin runs the job of a rest until its answer has begun well, or until that has taken as long as a first
// token may.
func (j *job) begin(ctx context.Context) (*answer, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	clock := time.AfterFunc(j.q.snap.cfg.Timeouts.DecodeFirst, func() { cancel(errRestLate) })
	defer clock.Stop()
	a, f := j.try(ctx)
	if f != nil {
		cancel(nil)
	}
	return a, f
}

// goesOnAt reports whether the token ids of a rest mean to a decode replica what they meant where they were
// made, whether it takes them, and whether it has the weights that the answer was begun with.
func (j *job) goesOnAt(d *replica.Replica) bool {
	other := j.rest.began != nil && planner.OtherWeights(j.rest.began, d, j.req.Model) != ""
	return reuses(&d.Facts, j.req.Kind) && j.ids.legs(d) != nil && !other
}

// restOnly refuses to let an engine begin an answer anew that it is to go on with.
func (h *handoff) restOnly() *failure {
	if h.j.rest.delivered == nil || h.j.goesOnAt(&h.b.Decode) {
		return nil
	}
	return refuse(kindNoIDReuse, site{
		phase: "decode", at: h.b.Decode.ID, words: "The decode replica takes no token ids.",
	})
}
