package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// prefill runs the prefill leg to the end of its answer and ends the prefill lease.
func (h *handoff) prefill(ctx context.Context) (*connector.Reply, *failure) {
	to := h.acquire(&h.b.Prefill)
	if to == nil {
		return nil, h.left(&h.b.Prefill)
	}
	ctx, giveUp, over := h.prefillContext(ctx)
	defer over()
	out, f := h.prefillBody()
	if f != nil {
		return nil, f
	}
	ctx, span := h.j.leg(ctx, observe.LegPrefill, &to.Member)
	h.prefillBegins(to)
	defer h.watch().overPull(h.pullSource(h.prefillLeg.sentAt)).overSilence(to, phasePrefill, giveUp).Stop()
	var held []byte // the answer's memory; its parts are used until the reply has a copy
	defer func() { giveBuffer(held) }()
	answer, f := h.exchange(ctx, to, out, &held)
	h.prefillLeg.doneAt = time.Now()
	if h.beside == nil {
		h.clock.stop() // the margin limits the time between the legs
	}
	h.j.rec.Phases.Prefill += ms(h.prefillLeg.doneAt.Sub(h.prefillLeg.sentAt))
	endPrefill(span, &answer, f)
	if f != nil {
		unnamed := h.j.connect.Traits().NoParams && f.kind == kindBadAnswer
		if len(answer.Params) > 0 || unnamed { // the engine keeps the blocks for this request even so
			h.giveBack(connector.NewReply(answer.Params, h.prefillLeg.doneAt, 0, 0), "")
		}
		return nil, f
	}
	h.prefillDone(&answer)
	return h.reply(&answer)
}

// reply returns what a good answer of the prefill leg gives to the decode leg. Without params, only the end
// at the length shows that the engine keeps the blocks. An engine that aborts the leg, as before a sleep,
// answers with status 200 and drops the blocks.
func (h *handoff) reply(answer *openai.PrefillAnswer) (*connector.Reply, *failure) {
	if answer.Stopped && h.j.connect.Traits().NoParams && !h.j.byContent() {
		return nil, h.notHandedOver(&connector.InvalidParams{
			Field: "finish_reason", Reason: "is not length: the prefill engine keeps no blocks",
		})
	}
	size := h.b.Prefill.Facts.BlockSize
	return connector.NewReply(answer.Params, h.prefillLeg.doneAt, h.prefillLeg.promptTokens, size), nil
}

// prefillLeg is the state of the prefill leg of an attempt.
type prefillLeg struct {
	from          *fleet.Endpoint      // the prefill replica; nil before the leg
	sentAt        time.Time            // the leg
	doneAt        time.Time            // the last byte of its answer
	engineStalled time.Duration        // how long the engine and this process had stood still before
	routerStalled time.Duration        // for which we had
	leaseCounters *fleet.LeaseCounters // of the engine before it
	promptTokens  int                  // as the engine counted them
	cached        openai.CachedPrompt  // of the engine
}

// age returns the longest time for which the blocks of the prefill can have been leased. A lease begins
// between the prefill leg's first byte and the last byte of its answer. A closer bound is unknown, because an
// answer waits in a socket while a process stands still. The router's clock includes the time in which an
// engine stands still. It may not include the time in which this process stands still, so this time is added.
func (l *prefillLeg) age(clock *liveness.Clock, now time.Time) time.Duration {
	return now.Sub(l.sentAt) + clock.StalledFor(now) - l.routerStalled
}

// prefillBegins records when the leg is sent, and values to compare later: how long both sides had stood
// still, and the engine's counters of leases.
func (h *handoff) prefillBegins(to *fleet.Endpoint) {
	l := &h.prefillLeg
	l.from, l.sentAt = to, time.Now()
	l.engineStalled = to.StalledFor(l.sentAt)
	l.routerStalled = h.j.clock.StalledFor(l.sentAt)
	l.leaseCounters = to.LeaseCounters()
}

// prefillDone ends the prefill lease and records what the answer reports.
func (h *handoff) prefillDone(answer *openai.PrefillAnswer) {
	j, took := h.j, h.prefillLeg.doneAt.Sub(h.prefillLeg.sentAt)
	at := h.b.Prefill.ID
	j.m.Phases.Observe(observe.PhasePrefill, took)
	j.m.Legs.Seconds.WithLabelValues("prefill", string(at)).Observe(took.Seconds())
	j.m.Legs.Compare("prefill", at, took, h.b.PrefilledWithin())
	h.prefillLeg.cached.Found, h.prefillLeg.promptTokens = answer.CachedTokens, answer.PromptTokens
	j.rec.Delivered = answer.CachedTokens
	h.b.Counted(answer.PromptTokens)
	h.b.PrefillLease.Done(answer.CachedTokens, took, h.prefillLeg.doneAt)
	promptComputed(j)
}

// pullsFrom returns the engine from which the next leg pulls blocks, nil for none. Later legs find the blocks
// on the engine. A source that has left cannot be watched. A source that may have cached wrong blocks has
// these blocks in the memory of its host, too, under the names of the right ones.
func (h *handoff) pullsFrom() *fleet.Endpoint {
	over := h.pieces.sent > 0
	if h.b.Mode == planner.Split {
		over = !h.prefillLeg.doneAt.IsZero()
	}
	if over || h.b.Pull().Tokens == 0 {
		return nil
	}
	from := h.j.fleet.Endpoint(h.b.Pull().From)
	if from == nil || from.CacheEpoch() > 0 {
		return nil
	}
	return from
}

// source returns where the next leg pulls blocks; zero for nowhere.
func (h *handoff) source() connector.Source {
	if h.pullsFrom() == nil {
		return connector.Source{}
	}
	return connector.Source{Host: h.b.Pull().Host, Port: h.b.Pull().Port}
}

// pullSource returns the engine of source, and how long the leg that is sent now may wait for it; nil for
// none.
func (h *handoff) pullSource(now time.Time) *pullSource {
	from := h.pullsFrom()
	if from == nil {
		return nil
	}
	return &pullSource{from, now.Add(3*h.b.PrefilledWithin() + silenceLimit(h.cfg()))}
}

// prefillContext returns the context of the prefill leg, which ends when the leg is given up or over is
// called. A leg without a parallel decode leg uses the context of the attempt, which has its own time limit
// and outlives its client for a moment.
func (h *handoff) prefillContext(
	ctx context.Context,
) (own context.Context, giveUp context.CancelCauseFunc, over func()) {
	if h.beside == nil {
		h.clock.start(h.cfg().Timeouts.Prefill, errPhaseTimeout)
		h.clock.grace.expect(time.Now().Add(h.b.PrefilledWithin()))
		return ctx, h.clock.cancel, h.clock.answered
	}
	own, giveUp = context.WithCancelCause(ctx)
	return own, giveUp, func() { giveUp(nil) }
}

// prefillBody writes leg 1: the ids on /v1/completions for any API, or the client's own body on its own path.
// If both legs use the same path, a chat has the ids besides its messages.
func (h *handoff) prefillBody() (*outgoing, *failure) {
	var out *outgoing
	var reuse []byte
	switch kind := h.j.req.Kind; {
	case h.ids != nil && (kind == openai.Completions || !h.j.connect.Traits().SamePath):
		out = &outgoing{body: h.j.req.PrefillIDs(h.ids.json), path: openai.Completions.Path(), id: h.attemptID}
	default:
		out = &outgoing{body: h.j.req.PrefillBody(false), path: kind.Path(), id: h.attemptID}
		if h.j.req.Batched {
			out.body.Set("prompt", h.j.prompt().Text)
		}
		if h.ids != nil {
			reuse = h.ids.json
		}
	}
	out.load = true
	leg := out.edited(h.attemptID)
	leg.ReuseIDs = reuse
	if err := h.j.connect.EditPrefill(leg, h.pair); err != nil {
		return nil, refuse(kindEdit, site{phase: phasePrefill, err: err})
	}
	return out, nil
}

// exchange sends leg 1 and reads its whole answer into held. The result uses the memory of held. A bad answer
// may have transfer params, which are used only to give blocks back.
func (h *handoff) exchange(
	ctx context.Context, to *fleet.Endpoint, out *outgoing, held *[]byte,
) (openai.PrefillAnswer, *failure) {
	none := openai.PrefillAnswer{CachedTokens: -1}
	leg, era := out.made(ctx, h.j), to.CacheEpoch()
	resp, err := to.Do(ctx, leg)
	giveBuffer(leg.Body)
	if err != nil {
		return none, legFailed(ctx, phasePrefill, to.Member.ID, err)
	}
	defer resp.Close()
	reportLoad(to, resp)
	raw, err := resp.AppendAll(borrow(0), int64(h.cfg().Limits.AnswerBytes))
	*held = raw
	if err != nil {
		return none, legFailed(ctx, phasePrefill, to.Member.ID, err)
	}
	if resp.Status != http.StatusOK {
		return none, engineAnswer(phasePrefill, to.Member.ID, resp, raw)
	}
	answer, err := openai.ReadPrefill(raw)
	if err == nil && h.ids != nil && answer.PromptTokens > 0 && answer.PromptTokens != len(h.ids.list) {
		err = errors.New("the engine counted another number of prompt tokens than were sent")
	}
	if err != nil {
		none.Params = answer.Params
		if ctx.Err() != nil {
			return none, legFailed(ctx, phasePrefill, to.Member.ID, err)
		}
		return none, refuse(kindBadAnswer, site{phase: phasePrefill, at: to.Member.ID, err: err})
	}
	if f := formerEra(phasePrefill, to, era); f != nil { // of one that decodes too
		none.Params = answer.Params
		return none, f
	}
	return answer, nil
}

// prefilled records that the prefill replica has computed blocks for a handoff.
func (h *handoff) prefilled() { h.j.trials.Announce(h.b.Prefilled(time.Now())) }

// unknownCache stands for the prefix cache of an engine that has not reported yet.
var unknownCache = openai.CachedPrompt{Found: -1, Added: -1}

// prefillCached returns how much of a split request's prompt the prefill engine had cached, and how much it
// has added. It waits for a parallel prefill leg, whose result changes nothing, since the answer is complete.
func (h *handoff) prefillCached() openai.CachedPrompt {
	if h.beside != nil {
		_ = h.beside.wait()
	}
	if h.b.Mode != planner.Split {
		return h.cachedBefore()
	}
	return h.prefillLeg.cached
}

// noteAdded computes what the prefill engine has added to its prefix cache, because the answer of a
// completion does not report it: all whole blocks of the prompt that it had not found in the cache (vLLM
// 0.32, v1/core/kv_cache_manager.py estimate_cached_tokens).
func (h *handoff) noteAdded(reply *connector.Reply) {
	if reply == nil || h.prefillLeg.cached.Found < 0 || !h.b.Prefill.Facts.PrefixCaching {
		return
	}
	if whole := reply.WholeBlocks(); whole >= 0 {
		h.prefillLeg.cached.Added = max(0, whole-h.prefillLeg.cached.Found)
	}
}
