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
	sentParams bool // the decode leg bears params: its engine reads blocks that are on loan

	answer    *answer // of the generating leg, nil before it
	pieces    piecesSent
	beside    *prefillBeside // concurrent order only
	endpoints [2]heldEngine  // of prefill and of decode
}

// heldEngine is the way to an engine that an attempt runs on, which is listened to until the end.
type heldEngine struct {
	*fleet.Endpoint      // nil before the leg
	needed          bool // the engine has something to do for the attempt
}

// cfg is the configuration that the request came under.
func (h *handoff) cfg() *config.Config { return h.j.cfg }

// acquire returns the way to an engine that the attempt runs on, which is listened to until the end even if
// it leaves; nil when it has left.
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

// salted is a body for the engines of the attempt, which a gateway sends: see [fleet.SaltedForPair].
func (h *handoff) salted(body []byte) []byte {
	return fleet.SaltedForPair(body, h.endpoints[0].Endpoint, h.endpoints[1].Endpoint)
}

// left is a replica that went while it was being chosen.
func (h *handoff) left(at *replica.Replica) *failure {
	to := h.j.fleet.Endpoint(at.ID)
	return refuse(kindLeft, site{
		phase: phase(at.Role.String()), at: at.ID, replaced: to != nil && !to.Member.SameEngine(at),
	})
}

// run sends the legs and returns the answer when the generating engine has begun to answer well. When it
// fails the caller calls end.
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
	if h.ids != nil {
		h.pair.PromptTokens = len(h.ids.list)
	}
	if h.j.connect.Traits().Order == connector.Concurrent {
		return h.concurrent(ctx)
	}
	return h.inTurn(ctx)
}

// end ends the attempt: it ends the answer's leg, joins a prefill leg that runs beside, and gives back what
// the booking holds. Harmless when repeated.
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

// giveBack lets the prefill engine free blocks that no decode leg will read, where the connector can.
func (h *handoff) giveBack(reply *connector.Reply, avoid replica.ID) {
	h.j.giveBack(h.j.connect, h.pair, reply, avoid, h.cfg().Timeouts.Probe)
}

// watch is the watch of the leg that runs, before it knows what to look at.
func (h *handoff) watch() *legWatch {
	w := &h.clock.watch
	w.clock, w.bound = h.j.clock, silenceLimit(h.cfg())
	return w
}

// atOnce reports whether both legs run at once.
func (h *handoff) atOnce() bool { return h.beside != nil }

// prefillRuns reports whether the prefill leg, beside this goroutine, may still write its result.
func (h *handoff) prefillRuns() bool { return h.beside != nil && !h.beside.ended() }

// prefillNeeded notes, at the end of the attempt, whether a decode engine may read the blocks of the prompt
// all the same: the decode engine got their parameters, and no token has shown that it has the blocks. It
// gets the blocks within their lease or not at all.
func (h *handoff) prefillNeeded() {
	if from := h.endpoints[0]; from.needed && h.sentParams {
		from.LentUntil(time.Now().Add(h.cfg().Connector.Lease))
	}
}

// pulled notes that the decode engine has the blocks of the prompt, which the prefill engine keeps no more:
// there is nothing left for that one to do.
func (h *handoff) pulled() {
	if from := &h.endpoints[0]; from.needed && h.beside == nil {
		from.needed = false
		from.End()
	}
}

// startDecodeClock begins the phase that ends with the first content of an answer that is streamed, or else
// with the whole answer.
func (h *handoff) startDecodeClock() {
	if timeouts := h.cfg().Timeouts; h.j.req.Stream {
		h.clock.start(timeouts.DecodeFirst, errPhaseTimeout)
	} else {
		h.clock.start(timeouts.Answer, errAnswerLate)
	}
}

// inTurn is the Sequential order, and the Shared one.
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

// ended is an attempt whose context ended between the legs. Where the clock of the prefill did it, just
// behind the last byte, the client is still there.
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
			return nil, p // the cause, not the cancelled other half
		}
		return nil, f
	}
	return a, nil
}
