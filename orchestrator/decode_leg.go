package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// local lets the decode replica compute the prompt: the pieces of the prompt first, then the client's whole
// request.
func (h *handoff) local(ctx context.Context) (*answer, *failure) {
	if h.b.Stored() > 0 {
		h.j.m.Handoffs.LeftOut.WithLabelValues(string(h.b.Decode.ID)).Inc()
	} else if f := h.inPieces(ctx); f != nil {
		return nil, f
	}
	h.b.DecodeLease.MarkSent(time.Now())
	out := h.generating()
	more := connector.Whole{AttemptID: h.attemptID}
	if h.j.plan.PullsWhole {
		more.Source = h.source()
	}
	if h.j.rest.delivered != nil && h.j.req.Kind != openai.Completions {
		more.IDs = h.j.idsJSON()
	}
	more.Edit(out.body)
	return h.send(ctx, out)
}

// generating starts the leg that makes the answer: the client's request, with the question for its usage.
func (h *handoff) generating() *outgoing {
	out := &outgoing{body: h.j.body(), path: h.j.req.Kind.Path(), id: h.attemptID}
	out.load = !h.j.req.Stream
	if out.usage = h.asksUsage(); out.usage {
		out.body.AskUsage()
	}
	return out
}

// rebind checks the chosen decode replica again after the prefill. Meanwhile it may have lost its room or
// died.
func (h *handoff) rebind(ctx context.Context) *failure {
	moved, err := h.j.planner.Rebind(h.b, &h.j.plan, time.Now())
	if err != nil {
		if ctx.Err() != nil {
			return h.ended(ctx)
		}
		return refuse(kindNoDecode, site{phase: phaseHandoff, err: err})
	}
	if !moved {
		return nil
	}
	h.j.m.Handoffs.Rebinds.Inc()
	h.j.rec.Decode, h.j.rec.Decision = string(h.b.Decode.ID), h.b.Decision
	if d := h.b.Decision; d != nil && d.Moved != nil {
		h.j.rec.Reason += "; then moved to " + string(d.Moved.To) + ": " + d.Moved.Reason
	}
	if h.ids != nil && !h.j.byContent() &&
		(!reuses(&h.b.Decode.Facts, h.j.req.Kind) || h.j.legsFor(&h.b.Decode) == nil) {
		return refuse(kindNoIDReuse, site{phase: phaseHandoff})
	}
	h.pair.Decode = h.b.Decode
	return nil
}

// decode writes the decode leg and sends it.
func (h *handoff) decode(ctx context.Context, reply *connector.Reply) (*answer, *failure) {
	_, span := h.j.spans.Step(ctx, "handoff")
	out := h.generating()
	leg := out.edited(h.attemptID)
	switch {
	case h.ids == nil && h.beside == nil:
		h.pair.PromptTokens = h.prefillLeg.promptTokens
	case h.ids == nil:
	case h.j.req.Kind == openai.Completions:
		out.body.Set("prompt", h.ids.json)
	default:
		leg.ReuseIDs = h.ids.json
	}
	err := h.j.connect.EditDecode(leg, h.pair, reply, h.use(reply))
	if reply != nil {
		h.sentParams = true
		out.last = func() error {
			if reply.Expired(h.use(reply)) {
				return connector.ErrExpired
			}
			return nil
		}
	}
	span.End()
	if err != nil {
		return nil, h.notHandedOver(err)
	}
	h.noteAdded(reply)
	if h.beside == nil {
		h.prefilled()
	}
	return h.send(ctx, out)
}

// use returns the present time for the params of reply. If the process stood still, the params are older than
// its clock shows.
func (h *handoff) use(reply *connector.Reply) connector.Use {
	use := connector.Use{Now: time.Now(), Margin: h.cfg().Connector.Margin}
	if reply != nil {
		use.Now = use.Now.Add(h.prefillLeg.from.StalledFor(use.Now) - h.prefillLeg.engineStalled)
	}
	return use
}

// notHandedOver returns the failure for transfer params that must not be sent.
func (h *handoff) notHandedOver(err error) *failure {
	kind, s := kindBadParams, site{phase: phaseHandoff, err: err}
	switch {
	case errors.Is(err, connector.ErrExpired):
		kind = kindExpired
	case errors.Is(err, connector.ErrTaken):
		kind = kindTaken
	case errors.Is(err, connector.ErrForeign):
		kind = kindForeign
	}
	if kind == kindBadParams || kind == kindForeign {
		s.phase, s.at = phasePrefill, h.b.Prefill.ID
	}
	name := failureTable[kind].name
	h.j.m.Handoffs.Params.WithLabelValues(name).Inc()
	s.words = "The prefill replica's answer could not be handed over: " + name + "."
	if h.cfg().Local == config.LocalNever {
		s.words += " No decode replica may compute the prompt itself (local: never)."
	}
	return refuse(kind, s)
}

// send sends the generating leg and waits until a good answer has begun.
func (h *handoff) send(ctx context.Context, out *outgoing) (*answer, *failure) {
	to := h.acquire(&h.b.Decode)
	if to == nil {
		return nil, h.left(&h.b.Decode)
	}
	a := newAnswer(ctx, h, to)
	h.answer = a
	a.usage.unasked = out.unasked(&to.Member.Facts)
	if f := h.open(ctx, a, out); f != nil {
		a.span.Failed(f.onSpan())
		a.maybeDistrust(f)
		a.close()
		if h.strands(f) {
			h.rescue(a.spanCtx, nil)
		}
		return nil, f
	}
	return a, nil
}

// open opens the answer of a leg, and rescues a leg that waits.
func (h *handoff) open(ctx context.Context, a *answer, out *outgoing) *failure {
	if h.sentParams && h.j.connect.Traits().CutLeaks {
		return openUncut(ctx, h, a, out)
	}
	late := h.rescueLater(a.spanCtx)
	defer late.stop()
	return a.open(out.made(a.spanCtx, h.j))
}

// strands reports whether a decode leg with this failure may have left blocks on the engine, or a question on
// the prefill engine, that a prefill leg frees.
func (h *handoff) strands(f *failure) bool {
	t := h.j.connect.Traits()
	leaves := t.Rescue || t.AsksAgain && !h.j.req.Stream
	return leaves && h.sent(f)
}

// sent reports whether the decode engine got a leg with params, and did not report its end.
func (h *handoff) sent(f *failure) bool {
	return h.sentParams && !f.unused() && !f.own() && f.kind != kindMisplaced
}

// rescue sends the prefill leg once more, in the background. It may outlive the request. failed, which may be
// nil, is called if the prefill engine did not compute the prompt again.
func (h *handoff) rescue(ctx context.Context, failed func()) {
	e, to := h.j.env, h.endpoints[0].Endpoint
	if to == nil || !to.Hold() {
		return
	}
	out, f := h.prefillBody()
	if f != nil {
		to.Release()
		return
	}
	leg := out.made(ctx, h.j)
	log := h.j.log.With("prefill", string(to.Member.ID), "decode", string(h.b.Decode.ID))
	cfg, before := h.cfg(), h.prefillLeg.leaseCounters
	con, pair := h.j.connect, h.pair
	strands := con.Traits().Rescue
	to.Begin()
	e.giveBacks.running.Go(func() { // joined by Run
		defer to.Release()
		defer to.End()
		// It intentionally outlives the request, and ends with the timeout.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Timeouts.Prefill)
		defer cancel()
		result := "failed"
		e.panics.Contain("rescue", func() {
			if !strands && !e.askOnce(ctx, con, pair) {
				giveBuffer(leg.Body)
				return
			}
			result = prefillAgain(ctx, cfg, to, leg, before)
		})
		e.m.Handoffs.Rescues.WithLabelValues(result).Inc()
		if result == "prefilled" || !strands {
			return // a question ends with the time-out of the prefill engine, or with its process
		}
		if log.Warn("a decode replica may keep blocks until it is restarted: they wait for a prefill replica that "+
			"cannot write them any more", "result", result); failed != nil {
			failed()
		}
	})
}

// prefillAgain sends leg and returns its result for metrics. before is of the engine at the first prefill
// leg.
func prefillAgain(
	ctx context.Context, cfg *config.Config, to *fleet.Endpoint, leg *engine.Request,
	before *fleet.LeaseCounters,
) string {
	resp, err := to.Do(ctx, leg)
	giveBuffer(leg.Body)
	if err != nil {
		return "failed"
	}
	defer resp.Close()
	if _, err = resp.ReadAll(1 << 20); err != nil || resp.Status != http.StatusOK {
		return "failed"
	}
	if _, err := askLeaseCounters(ctx, cfg, to, before); errors.Is(err, errOtherProcess) {
		return "restarted"
	}
	return "prefilled"
}

// rescueLater starts to wait. The caller stops it.
func (h *handoff) rescueLater(ctx context.Context) *lateRescue {
	l := new(lateRescue)
	if !h.sentParams || !h.j.connect.Traits().Rescue {
		return l
	}
	cancel, late := h.clock.cancel, firstByteBy(h.cfg())
	broken := &stuck{outlier.Pair{Prefill: h.b.Prefill.ID, Decode: h.b.Decode.ID}, late}
	l.timer = time.AfterFunc(late, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			h.rescue(ctx, func() { cancel(broken) })
		}
	})
	return l
}

// asksUsage reports whether the engine is asked for usage although the client does not ask. Streams of vLLM
// 0.20, 0.28 and 0.32 are the same with usage and without, except for what [eventReader.take] removes.
func (h *handoff) asksUsage() bool {
	return h.j.req.MayAskUsage && replica.AtLeast(h.b.Decode.Facts.Version, 0, 19)
}

// watchDecodeLeg watches a decode leg to an engine until its first content.
func (h *handoff) watchDecodeLeg(to *fleet.Endpoint) *liveness.Watchdog {
	w := h.watch()
	w.to, w.from = to, h.prefillLeg.from
	if h.j.plan.PullsWhole {
		w.pull = h.pullSource(time.Now())
	}
	w.transfer = transferWatch{}
	if h.sentParams {
		now := time.Now()
		w.transfer = transferWatch{
			env: h.j.env, pair: outlier.Pair{Prefill: h.b.Prefill.ID, Decode: h.b.Decode.ID}, sent: now,
			wait: w.bound / 2, next: now.Add(w.bound / 2),
		}
	}
	return w.overDecodeLeg(h.clock.cancel)
}

// restOnly refuses to send a rest to an engine that would start the answer again.
func (h *handoff) restOnly() *failure {
	if h.j.rest.delivered == nil || h.j.goesOnAt(&h.b.Decode) {
		return nil
	}
	return refuse(kindNoIDReuse, site{
		phase: phaseDecode, at: h.b.Decode.ID, words: "The decode replica takes no token ids.",
	})
}

// streamed records that a part of the answer was read, and reports whether the planner should get the
// progress of the stream. It implements [legListener].
func (h *handoff) streamed(now time.Time) bool {
	if !h.j.tellsSteps() {
		return false
	}
	h.b.DecodeLease.Streamed(now)
	if h.b.Mode == planner.Local {
		promptComputed(h.j)
	}
	return true
}

// progressed reports the progress of the stream to the planner. It implements [legListener].
func (h *handoff) progressed(p decode.Progress, now time.Time) { h.b.DecodeLease.Progress(p, now) }

// delivered records how many tokens the engine had cached, if it computed the prompt itself. For several
// samples, the engine reports one sample, which may have found blocks that another sample had just computed.
// Such a report says nothing about the cache before the request (measured on vLLM 0.32).
func (h *handoff) delivered(u openai.Usage) {
	cached := u.Cached
	if h.pieces.upto > 0 && !h.pieces.had(h.blockSize()) {
		cached = h.pieces.cached
	}
	h.b.Counted(u.Prompt)
	if h.b.Mode != planner.Split && cached >= 0 && h.j.plan.Sequences <= 1 {
		h.j.rec.Delivered = cached
		h.b.DecodeLease.Delivered(cached, time.Now())
	}
}
