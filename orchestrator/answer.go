package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// answer is the answer of one engine, from its good start on. Its [delivery] gives it to the client. One
// goroutine owns the answer.
type answer struct {
	eventReader

	j       *job
	h       *handoff
	to      *fleet.Endpoint
	ctx     context.Context
	spanCtx context.Context
	span    observe.LegSpan
	guard   *liveness.Watchdog // until the first content of a split request
	before  engineBefore

	whole []byte    // no stream: the body, valid until the answer is closed
	first time.Time // time of the first content
	held  bool      // the end was already blamed on the engine
}

// engineBefore is the state of the answering engine before the leg was sent.
type engineBefore struct {
	reads *fleet.LeaseCounters // of blocks
	era   uint32               // of its cache, see [fleet.Endpoint.CacheEpoch]
	// Called when the engine no longer has the leg, if no lease counts the leg; nil if a lease does.
	counted func()
}

// newAnswer returns the answer of a leg that will be sent next.
func newAnswer(ctx context.Context, h *handoff, to *fleet.Endpoint) *answer {
	j := h.j
	a := &answer{j: j, h: h, to: to, ctx: ctx, before: engineBefore{reads: to.LeaseCounters()}}
	a.eventReader = eventReader{
		kind: j.req.Kind, at: to.Member.ID, idle: j.cfg.Timeouts.DecodeIdle, leg: h, given: j.given(),
		usage: answerUsage{reportedCached: -1, cached: unknownCache},
	}
	leg := observe.LegLocal
	if a.split() {
		leg = observe.LegDecode
	}
	if a.spanCtx, a.span = j.leg(ctx, leg, &to.Member); a.span.On() {
		a.said = &observe.Said{}
	}
	return a
}

// split reports whether the answer belongs to a split request.
func (a *answer) split() bool { return a.h.b.Mode == planner.Split }

// open sends the generating leg and reads until the answer is known to be good: a whole body with status 200,
// or the first content of a stream. A stream is inspected because vLLM reports a failed KV load inside a 200.
func (a *answer) open(r *engine.Request) *failure {
	a.h.startDecodeClock()
	if !a.h.atOnce() {
		a.guard = a.h.watchDecodeLeg(a.to)
	}
	a.before.era = a.to.CacheEpoch()
	if a.j.req.Kind == openai.Responses && a.to.Member.Pinned() { // the engine chooses the rank
		a.before.counted = a.to.Uncounted()
	}
	resp, err := a.to.Do(a.spanCtx, r)
	giveBuffer(r.Body)
	switch {
	case errors.Is(err, connector.ErrExpired):
		return a.h.notHandedOver(err)
	case err != nil:
		return a.failed(err)
	}
	a.resp = resp
	a.noteHandoff(resp)
	if resp.Status != http.StatusOK {
		return a.refused()
	}
	if !a.j.req.Stream {
		return a.readWhole()
	}
	return a.openStream()
}

// noteHandoff records the time between the legs.
func (a *answer) noteHandoff(resp *engine.Response) {
	if !a.split() || a.h.atOnce() {
		return
	}
	gap := resp.Sent.Sub(a.h.prefillLeg.doneAt)
	a.j.rec.Phases.Handoff = ms(gap)
	a.j.m.Handoffs.Gap.Observe(gap.Seconds())
	a.j.m.Phases.Observe(observe.PhaseHandoff, gap)
}

func (a *answer) failed(err error) *failure {
	return legFailed(a.ctx, phaseDecode, a.to.Member.ID, err)
}

// refused returns an engine's error answer as a failure.
func (a *answer) refused() *failure {
	f := refusal(a.ctx, phaseDecode, a.to, a.resp, int64(a.j.cfg.Limits.AnswerBytes))
	return f.withSource(a.source(f.reply.status))
}

// source returns the prefill replica if an answer with this status can mean that its blocks could not be
// loaded.
func (a *answer) source(status int) replica.ID {
	if a.split() && status == http.StatusInternalServerError {
		return a.h.b.Prefill.ID
	}
	return ""
}

// readWhole reads an answer that is not streamed.
func (a *answer) readWhole() *failure {
	reportLoad(a.to, a.resp)
	body, err := entire(a.resp, borrow(0), int64(a.j.cfg.Limits.AnswerBytes))
	a.buffers.buf = body
	if err != nil {
		return a.failed(err)
	}
	said := a.kind.Find(body)
	if !said.IsAnswer() {
		return a.endedEarly(errNoAnswer)
	}
	if f := a.verifyLease(); f != nil {
		return f
	}
	if f := formerEra(phaseDecode, a.to, a.before.era); f != nil {
		return f
	}
	a.begun()
	a.said.Whole(body)
	if u, ok := said.Usage(); ok {
		a.noteUsage(u)
	}
	a.buffers.head = borrow(len(body) + slack)
	a.whole = said.Shown(a.buffers.head, a.usage.cached)
	return nil
}

// openStream reads a stream up to its first content, its end, or its error.
func (a *answer) openStream() *failure {
	said, err := a.readFirst()
	switch {
	case said != nil:
		return said.withSource(a.source(said.reply.status))
	case err != nil:
		return a.endedEarly(err)
	}
	if f := a.verifyLease(); f != nil {
		return f
	}
	if f := formerEra(phaseDecode, a.to, a.before.era); f != nil {
		return f
	}
	a.begun()
	return nil
}

// endedEarly returns the failure of an answer that ended before its first content. After a failed load of
// blocks vLLM has no event on /v1/responses and cuts the connection. On other paths vLLM 0.26 can answer 200
// without content.
func (a *answer) endedEarly(err error) *failure {
	f := a.failed(err)
	cut := a.kind == openai.Responses && f.kind == kindBroken && a.flow.events > 0
	if cut || errors.Is(err, errNoAnswer) {
		return f.withSource(a.source(http.StatusInternalServerError))
	}
	return f
}

// begun stops the clock for the first content.
func (a *answer) begun() {
	a.h.clock.stop()
	a.guard.Stop()
	a.first = time.Now()
	a.h.pulled()
	j := a.j
	took := a.first.Sub(a.resp.Sent)
	j.m.Legs.Seconds.WithLabelValues("decode", string(a.to.Member.ID)).Observe(took.Seconds())
	if j.req.Stream { // no client sees the first token of another answer
		leg := map[bool]string{true: observe.LegDecode, false: observe.LegLocal}[a.split()]
		if began := a.h.pieces.began; !began.IsZero() {
			took = a.first.Sub(began)
		}
		j.m.Legs.Compare(leg, a.to.Member.ID, took, a.h.b.FirstWithin())
	}
	j.rec.Phases.First = ms(a.first.Sub(j.start))
	if j.rest.delivered == nil && j.req.Stream {
		j.m.Phases.Observe(observe.PhaseFirst, a.first.Sub(j.start))
	}
	a.traceBegun(j.planner.FirstToken(a.h.b, a.first))
	j.trials.Announce(a.h.b.Decoding(a.first))
	a.expectBlocks()
	switch {
	case a.split() && !a.h.atOnce():
		a.usage.cached = a.h.prefillLeg.cached
	case !a.split():
		a.usage.cached = a.h.cachedBefore()
	}
}

// blameFor blames the end of the stream on its engine, once.
func (a *answer) blameFor(ctx context.Context, err error) (blamed planner.FailedAttempt) {
	blamed.Booking = a.h.b
	if a.held || errors.Is(err, openai.ErrDiverged) { // other kernels may round in another way
		a.held = true
		return blamed
	}
	a.held = true
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = legFailed(ctx, phaseStream, a.to.Member.ID, err)
	}
	a.span.Failed(f.onSpan())
	j := a.j
	blamed.Fault = j.failedOn(a.h.b, f, j.fingerprint(), j.start, time.Now()).Fault
	return blamed
}

// endWith ends the client's stream with the given events and the end marker.
func (a *answer) endWith(events []byte) {
	a.buffers.head, a.end.over = append(events, a.kind.EndMark()...), true
	a.flow.events++
}

// endHeld ends an answer whose engine reported the end and then broke off before its usage. If more than the
// usage is missing, it returns false and changes nothing.
func (a *answer) endHeld() bool {
	if a.usage.unasked.held == nil {
		return false
	}
	given := a.given.Clone()
	if _, err := given.Event(nil, a.usage.unasked.held); err != nil || !given.Complete(false) {
		return false
	}
	a.endWith(a.releaseNamed(borrow(len(a.usage.unasked.held)), a.usage.unasked.name))
	return true
}

// close ends the leg and its span. A repeated call has no effect. The engine notices a connection that closes
// before the end, and ends the request.
func (a *answer) close() {
	a.h.clock.stop()
	a.guard.Stop()
	a.buffers.drop()
	if a.resp != nil {
		a.resp.Close()
	}
	if a.before.counted != nil {
		a.before.counted()
	}
	a.endSpan()
}

// decoded returns when the engine had generated the last token of an answer that ended now. A client that
// reads slowly hides this time: once the buffers are full, the engine's answer waits for the client. Then
// decoded returns the time of the first token.
func (a *answer) decoded(now time.Time) time.Time {
	const hides = 0.1 // share of the generating time
	if a.flow.blocked.Seconds() > hides*now.Sub(a.first).Seconds() {
		return a.first
	}
	return now
}
