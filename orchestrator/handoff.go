package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// handoff is one attempt: the legs of a booking, sent in the connector's order.
//
//	Sequential  prefill leg -> its answer's transfer params -> (decode looked at again) -> decode leg
//	Concurrent  both legs at once; the decode leg's answer counts, a failed prefill leg ends it
//	Shared      prefill leg -> (decode looked at again) -> decode leg, which bears nothing of the answer
//
// One goroutine owns it; a concurrent prefill leg has one of its own, joined by end.
type handoff struct {
	j         *job
	b         *planner.Booking
	attemptID string // on both legs
	pair      connector.Pair

	ids        *legIDs // both legs carry them; nil: both carry the client's own body
	clock      attemptClock
	prefillLeg prefillLeg
	sentParams bool // the decode leg has params: its engine reads blocks under a lease

	answer    *answer // answer of the generating leg; nil before this leg
	pieces    piecesSent
	beside    *prefillBeside // concurrent order only
	endpoints [2]heldEngine  // of prefill and of decode
}

// heldEngine is the path to an engine of the attempt. The attempt watches the engine until the end.
type heldEngine struct {
	*fleet.Endpoint      // nil before the leg
	needed          bool // the engine still has work for the attempt
}

// cfg returns the configuration with which the request came.
func (h *handoff) cfg() *config.Config { return h.j.cfg }

// acquire returns the path to an engine of the attempt; nil if the engine has left. The attempt watches the
// engine until the end, even if the engine leaves later.
func (h *handoff) acquire(at *replica.Replica) *fleet.Endpoint {
	held := &h.endpoints[at.Role-replica.Prefill]
	if held.Endpoint != nil && held.Member.SameEngine(at) {
		return held.Endpoint
	}
	to := h.j.fleet.Endpoint(at.ID)
	if to == nil || !to.Member.SameEngine(at) || !to.Hold() {
		return nil
	}
	*held = heldEngine{to, true}
	to.Begin()
	return to
}

// salted returns the body that a gateway sends to the engines of the attempt: see [fleet.SaltedForPair].
func (h *handoff) salted(body []byte) []byte {
	return fleet.SaltedForPair(body, h.endpoints[0].Endpoint, h.endpoints[1].Endpoint)
}

// left returns the failure for a replica that left while it was being chosen.
func (h *handoff) left(at *replica.Replica) *failure {
	to := h.j.fleet.Endpoint(at.ID)
	return refuse(kindLeft, site{
		phase: phase(at.Role.String()), at: at.ID, replaced: to != nil && !to.Member.SameEngine(at),
	})
}

// run sends the legs and returns the answer when a good answer of the generating engine has begun. If run
// fails, the caller calls end.
func (h *handoff) run(ctx context.Context) (*answer, *failure) {
	h.prefillLeg.cached = unknownCache
	if f := h.restOnly(); f != nil {
		return nil, f
	}
	ctx = h.clock.begin(ctx)
	if h.b.Mode == planner.Local {
		return h.local(ctx)
	}
	var f *failure
	if h.ids, f = h.j.idsFor(ctx, &h.b.Prefill, &h.b.Decode); f != nil {
		return nil, f
	}
	h.pair = connector.Pair{Prefill: h.b.Prefill, Decode: h.b.Decode, AttemptID: h.attemptID, IDs: h.ids != nil}
	h.pair.Source = h.source()
	if h.ids != nil {
		h.pair.PromptTokens = len(h.ids.list)
	}
	if h.j.connect.Traits().Order == connector.Concurrent {
		return h.concurrent(ctx)
	}
	return h.inTurn(ctx)
}

// end ends the attempt. It ends the answer's leg, waits for a prefill leg in the background, and releases
// what is left of the booking. A repeated call has no effect.
func (h *handoff) end() {
	if h.answer != nil {
		h.answer.close()
	}
	h.clock.end()
	if h.beside != nil {
		h.beside.end()
	}
	h.b.Release(time.Now())
	h.prefillNeeded()
	for i, e := range h.endpoints {
		if e.Endpoint == nil {
			continue
		}
		if e.needed {
			e.End()
		}
		e.Release()
		h.endpoints[i] = heldEngine{}
	}
	h.j.wake()
}

// giveBack lets the prefill engine free blocks that no decode leg will read, if the connector can do this.
func (h *handoff) giveBack(reply *connector.Reply, avoid replica.ID) {
	h.j.giveBack(h.j.connect, h.pair, reply, avoid, h.cfg().Timeouts.Probe)
}

// watch returns a new watch for the running leg. Its targets are not set yet.
func (h *handoff) watch() *legWatch {
	w := &h.clock.watch
	w.clock, w.bound = h.j.clock, silenceLimit(h.cfg())
	w.pull = nil
	return w
}

// atOnce reports whether both legs run at once.
func (h *handoff) atOnce() bool { return h.beside != nil }

// prefillRuns reports whether a prefill leg in the background may still write its result.
func (h *handoff) prefillRuns() bool { return h.beside != nil && !h.beside.ended() }

// prefillNeeded records, at the end of the attempt, whether a decode engine may still read the blocks of the
// prompt: it got the transfer params, and no token has shown that it has the blocks. It can read them only
// within their lease.
func (h *handoff) prefillNeeded() {
	if from := h.endpoints[0]; from.needed && h.sentParams {
		from.LentUntil(time.Now().Add(h.cfg().Connector.Lease))
	}
}

// pulled records that the decode engine has the blocks of the prompt. The prefill engine keeps them no
// longer, so it has no more work for the attempt.
func (h *handoff) pulled() {
	if from := &h.endpoints[0]; from.needed && h.beside == nil {
		from.needed = false
		from.End()
	}
}

// startDecodeClock begins the phase up to the first content of a streamed answer, or up to the end of another
// answer.
func (h *handoff) startDecodeClock() {
	if timeouts := h.cfg().Timeouts; h.j.req.Stream {
		h.clock.start(timeouts.DecodeFirst, errPhaseTimeout)
	} else {
		h.clock.start(timeouts.Answer, errAnswerLate)
	}
}

// inTurn sends the legs in the Sequential order, or the Shared one.
func (h *handoff) inTurn(ctx context.Context) (*answer, *failure) {
	reply, f := h.prefill(ctx)
	if f != nil {
		return nil, f
	}
	if h.j.byContent() {
		reply = nil
	}
	if ctx.Err() != nil {
		h.giveBack(reply, "")
		return nil, h.ended(ctx)
	}
	if f := h.rebind(ctx); f != nil {
		h.giveBack(reply, h.b.Decode.ID)
		return nil, f
	}
	a, f := h.decode(ctx, reply)
	if f != nil && f.unused() && reply != nil {
		reply.Unsent()
		h.giveBack(reply, f.at)
	}
	return a, f
}

// ended returns the failure of an attempt whose context ended between the legs. If the time limit of the
// prefill ended it just after the last byte, the client is still there.
func (h *handoff) ended(ctx context.Context) *failure {
	if errors.Is(context.Cause(ctx), errPhaseTimeout) {
		return legFailed(ctx, phasePrefill, h.b.Prefill.ID, errPhaseTimeout)
	}
	return goneFailure(ctx, site{phase: phaseHandoff, cutAt: h.b.Prefill.ID}) // which has the blocks still
}

// concurrent sends both legs at once.
func (h *handoff) concurrent(ctx context.Context) (*answer, *failure) {
	h.b.DecodeLease.MarkSent(time.Now())
	h.beside = new(prefillBeside)
	ctx = h.beside.start(ctx, h.cfg().Timeouts.Prefill, func(ctx context.Context) *failure {
		_, f := h.prefill(ctx)
		if f == nil {
			h.prefilled()
		}
		return f
	})
	a, f := h.decode(ctx, nil)
	if f != nil {
		if p := h.beside.failure(); p != nil {
			return nil, p // the cause, instead of the cancelled other leg
		}
		return nil, f
	}
	return a, nil
}
