package orchestrator

import (
	"context"
	"fmt"
	"time"

	"tandem/internal/liveness"
	"tandem/internal/replica"
	"tandem/orchestrator/fleet"
)

// unresponsive is an engine that stood still (SIGSTOP, a paused machine, a stuck driver) with a prompt in
// it, or while transfer parameters that it needs were under way.
//
// A leg is given up when one of its engines has answered nothing, its metrics included, for two thirds of
// what the lease has beyond the margin. The decode engine finds the connection closed when it goes on, and
// aborts.
//
// There are two reasons. A prefill leg would wait as long as prefills may take, which is minutes, while
// others are idle. And a decode engine that goes on after the lease has ended pulls blocks that belong to
// somebody else by then; so does one whose prefill engine has just gone on. That is 200 with wrong text.
//
// Silence is what tells, and not age: while both engines live, vLLM's heartbeats keep the lease, however
// long the decode engine's queue is.
type unresponsive struct {
	at    replica.ID
	phase string
	since time.Duration
}

func (s *unresponsive) Error() string {
	return fmt.Sprintf("%s has not answered anything for %v", s.at, s.since.Round(time.Millisecond))
}

// watchDecodeLeg watches over a decode leg until its first content: it is given up if one of its engines is
// silent, or if its blocks are stuck between them. A prefill engine counts only if it fell silent early:
// later the blocks have been read.
func (h *handoff) watchDecodeLeg(to *fleet.Endpoint) *liveness.Watchdog {
	clock, bound := h.j.q.o.clock, h.silenceLimit()
	sent, transfer := clock.Running(time.Now()), h.watchTransfer(to, bound/2)
	return liveness.Watch(bound/2, h.clock.cancel, func() (time.Duration, error) {
		now := time.Now()
		if stuck := transfer.look(now); stuck != nil {
			return 0, stuck
		}
		if silence := to.Silence(now); silence > to.SilenceLimit(bound) {
			return 0, &unresponsive{h.b.Decode.ID, "decode", silence}
		}
		from := h.prefillLeg.from
		if from == nil { // the decode engine computes the prompt itself
			return bound / 4, nil
		}
		silence := from.Silence(now)
		if early := clock.Running(now)-silence < sent+bound; early && silence > from.SilenceLimit(bound) {
			return 0, &unresponsive{h.b.Prefill.ID, "prefill", silence}
		}
		return bound / 4, nil
	})
}

// watchSilence watches over what has an engine compute a prompt, a prefill leg or a piece, until its answer
// is there: it is given up, by end, if its engine is silent. An engine that goes on later finds the
// connection closed and drops the prompt; blocks that it keeps all the same come free with their lease, since
// nobody has their parameters.
func (h *handoff) watchSilence(
	to *fleet.Endpoint, leg string, end context.CancelCauseFunc,
) *liveness.Watchdog {
	bound := h.silenceLimit()
	left := func() (silence, left time.Duration) {
		silence = to.Silence(time.Now())
		return silence, to.SilenceLimit(bound) - silence
	}
	_, first := left()
	return liveness.Watch(max(first, bound/4), end, func() (time.Duration, error) {
		silence, left := left()
		if left < 0 {
			return 0, &unresponsive{to.Member.ID, leg, silence}
		}
		return left + time.Millisecond, nil
	})
}

// silenceLimit is the silence that says that an engine of the attempt stands still.
func (h *handoff) silenceLimit() time.Duration {
	cfg := h.cfg
	poll := max(cfg.Pools.Prefill.PollInterval, cfg.Pools.Decode.PollInterval)
	return max((cfg.Connector.Lease-cfg.Connector.Margin)*2/3, 3*poll)
}
