package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/picker"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// send tells the gateway the destination.
func (p *pick) send(q *request, body []byte) *failure {
	b := p.h.b
	to := &picker.Destination{
		ID: p.j.rec.ID, Decode: hostPort(&b.Decode), Body: p.h.salted(body),
		Key: q.cfg.Pools.Decode.APIKey.Reveal(), HideKey: !q.keys.Open(), Session: q.session.id,
	}
	if b.Mode == planner.Split {
		to.Prefill = hostPort(&b.Prefill)
	}
	p.sentAt = time.Now()
	if err := p.g.Send(to); err != nil {
		return lost(err)
	}
	if b.Mode == planner.Local {
		p.handOver(p.sentAt)
	}
	return nil
}

// follow passes the answer on to its end. Every wait has a limit.
func (p *pick) follow(ctx context.Context) *failure {
	timeouts := &p.j.cfg.Timeouts
	limit, late := timeouts.Answer, errAnswerLate
	if !p.j.plan.Quiet {
		limit, late = timeouts.DecodeFirst, errPhaseTimeout
	}
	if p.h.b.Mode == planner.Split {
		limit += timeouts.Prefill
	}
	p.h.clock.start(limit, late)
	for {
		part, err := p.next(ctx)
		switch {
		case err != nil && ctx.Err() == nil: // the gateway does not say whether its client or the engine has left
			return lost(err)
		case err != nil:
			return legFailed(ctx, phaseDecode, p.h.b.Decode.ID, err)
		}
		if part.Elsewhere != "" {
			p.lose(part.Elsewhere)
		}
		out, err := p.answer.take(p.kind, &part, int(p.j.cfg.Limits.AnswerBytes))
		if err != nil {
			return legFailed(ctx, phaseStream, p.h.b.Decode.ID, err)
		}
		if p.answer.content && p.answer.firstAt.IsZero() {
			p.begun(time.Now())
		}
		if err := p.g.Give(out); err != nil {
			return lost(err)
		}
		switch {
		case part.End:
			return p.refused()
		case !p.answer.firstAt.IsZero() || p.answer.status >= http.StatusBadRequest:
			p.h.clock.start(timeouts.DecodeIdle, errPhaseTimeout)
		}
	}
}

// lose ends the booking, because another engine answers than the one that the gateway was told. Its answer
// teaches nothing.
func (p *pick) lose(served string) {
	j, b := p.j, p.h.b
	p.lost = true
	j.rec.Reason += "; the gateway let " + served + " answer"
	j.log.Warn("the gateway let another engine answer: see what its route retries", "id", j.rec.ID,
		"replica", string(b.Decode.ID), "served", served)
	b.Release(time.Now())
	j.wake()
}

// refused returns the failure of an answer with another status than 200, or with an error event; nil for a
// good answer. The client has got the answer.
func (p *pick) refused() *failure {
	a, at := &p.answer, p.h.b.Decode.ID
	kind, status := kindStatus, a.status
	switch {
	case a.errorCode > 0:
		kind, status = kindErrorEvent, a.errorCode
	case status < http.StatusMultipleChoices:
		return nil
	case !clientMayCause(status):
		return misplaced(phaseDecode, at, status).withDelivered()
	}
	f := answered(kind, site{phase: phaseDecode, at: at, status: status}, nil, "")
	// The sidecar also passes on errors of the prefill replica.
	if status >= http.StatusInternalServerError && a.firstAt.IsZero() {
		f = f.withSource(p.h.b.Prefill.ID)
	}
	return f.withDelivered()
}

// next waits for the next part of the answer. Meanwhile the prefill may end. No message shows its end, so the
// plan's prediction is used.
func (p *pick) next(ctx context.Context) (picker.Part, error) {
	if !p.handed && !p.lost {
		early, cancel := context.WithDeadline(ctx, p.sentAt.Add(p.h.b.PrefilledWithin()))
		part, err := p.g.Next(early)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return part, err
		}
		p.handOver(time.Now())
	}
	return p.g.Next(ctx)
}

// handOver records that the decode engine has the request now, according to the plan's prediction. The router
// does not see the first token of an answer that is not streamed. In this case the prefill lease ends now,
// and teaches nothing.
func (p *pick) handOver(now time.Time) {
	p.handed = true
	p.h.b.DecodeLease.MarkSent(now)
	if p.h.b.Mode == planner.Split && p.j.plan.Quiet {
		p.h.b.PrefillLease.Done(-1, 0, now)
	}
}

// begun records the first content, or the whole answer if it is not streamed. The time to the first token,
// without the predicted handoff, teaches the time of the prefill.
func (p *pick) begun(now time.Time) {
	j, b := p.j, p.h.b
	p.answer.firstAt = now
	if p.lost {
		return
	}
	if !p.handed {
		p.handOver(now)
	}
	if b.Mode == planner.Split {
		took := max(now.Sub(p.sentAt)-b.FirstWithin(), 0)
		b.PrefillLease.Done(-1, took, p.sentAt.Add(took))
		j.trials.Announce(b.Prefilled(now))
	}
	j.planner.FirstToken(b, now)
	j.trials.Announce(b.Decoding(now))
	j.rec.Phases.First = ms(now.Sub(j.start))
	if !j.plan.Quiet {
		j.m.Phases.Observe(observe.PhaseFirst, now.Sub(j.start))
	}
	p.h.pulled()
}

// settle learns from the answer, or blames the failure on a replica or pair. The booking ends with the
// handoff.
func (p *pick) settle(f *failure) {
	j, b := p.j, p.h.b
	a, now := &p.answer, time.Now()
	p.noteUsage(f)
	if p.lost {
		return
	}
	if f != nil {
		noteFailed(j.rec, b, f, j.start, p.sentAt)
		if j.req != nil {
			j.failedOn(b, f, j.fingerprint(), j.start, p.sentAt)
		}
		return
	}
	if a.firstAt.IsZero() {
		return
	}
	b.Counted(a.usage.Prompt)
	if b.Mode == planner.Local && a.usage.Cached >= 0 && j.plan.Sequences <= 1 {
		j.rec.Delivered = a.usage.Cached
		b.DecodeLease.Delivered(a.usage.Cached, now)
	}
	b.Finish(a.output, a.firstAt.Sub(j.start), now.Sub(j.start), now)
	countTokens(j, nil, b.Mode == planner.Split)
	if j.req != nil {
		rememberText(j, b)
	}
	j.captures.Note(func() observe.Served { return servedBy(j) })
}

// noteUsage records the usage of the answer so far, from any engine: the client's key pays for it.
func (p *pick) noteUsage(f *failure) {
	a, rec := &p.answer, p.j.rec
	if a.firstAt.IsZero() {
		return
	}
	if rec.Output = a.output; f != nil {
		rec.Output = max(rec.Output, 1) // also of an answer that is not read
	}
	if a.usage.Prompt > 0 {
		rec.Prompt = a.usage.Prompt
	}
}
