package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
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
	phase phase
	since time.Duration
	sleep bool // it is in sleep mode
}

func (s *unresponsive) Error() string {
	if s.sleep {
		return string(s.at) + " is in sleep mode"
	}
	return fmt.Sprintf("%s has not answered anything for %v", s.at, s.since.Round(time.Millisecond))
}

// legWatch watches over the leg of an attempt that runs, there is one at a time.
type legWatch struct {
	liveness.Watchdog

	// What it looks at, which is set before it watches.
	h        *handoff
	to       *fleet.Endpoint
	leg      phase
	bound    time.Duration // silenceLimit
	sent     time.Duration // a decode leg, by the clock that runs
	transfer transferWatch
}

// watchDecodeLeg watches over a decode leg until its first content: it is given up if one of its engines is
// silent, or if its blocks are stuck between them. A prefill engine counts only if it fell silent early:
// later the blocks have been read.
func (h *handoff) watchDecodeLeg(to *fleet.Endpoint) *liveness.Watchdog {
	w, now := &h.clock.watch, time.Now()
	w.h, w.to = h, to
	w.leg, w.bound = phaseDecode, h.silenceLimit()
	w.sent, w.transfer = h.j.clock.Running(now), h.watchTransfer(to, w.bound/2, now)
	w.Watch(w.bound/2, h.clock.cancel, (*decodeLegLook)(w))
	return &w.Watchdog
}

// decodeLegLook looks at the engines of a decode leg.
type decodeLegLook legWatch

// Look implements [liveness.Looker].
func (w *decodeLegLook) Look() (time.Duration, error) {
	clock, now := w.h.j.clock, time.Now()
	if stuck := w.transfer.look(now); stuck != nil {
		return 0, stuck
	}
	if w.to.Asleep() {
		return 0, &unresponsive{at: w.h.b.Decode.ID, phase: phaseDecode, sleep: true}
	}
	if silence := w.to.Silence(now); silence > w.to.SilenceLimit(w.bound) {
		return 0, &unresponsive{at: w.h.b.Decode.ID, phase: phaseDecode, since: silence}
	}
	from := w.h.prefillLeg.from
	if from == nil { // the decode engine computes the prompt itself
		return w.bound / 4, nil
	}
	silence := from.Silence(now)
	if early := clock.Running(now)-silence < w.sent+w.bound; early && silence > from.SilenceLimit(w.bound) {
		return 0, &unresponsive{at: w.h.b.Prefill.ID, phase: phasePrefill, since: silence}
	}
	return w.bound / 4, nil
}

// watchSilence watches over what has an engine compute a prompt, a prefill leg or a piece, until its answer
// is there: it is given up, by end, if its engine is silent. An engine that goes on later finds the
// connection closed and drops the prompt; blocks that it keeps all the same come free with their lease, since
// nobody has their parameters.
func (h *handoff) watchSilence(
	to *fleet.Endpoint, leg phase, end context.CancelCauseFunc,
) *liveness.Watchdog {
	w := &h.clock.watch
	w.h, w.to = h, to
	w.leg, w.bound = leg, h.silenceLimit()
	looks := (*silenceLook)(w)
	_, first := looks.left()
	w.Watch(max(first, w.bound/4), end, looks)
	return &w.Watchdog
}

// silenceLook looks at the one engine of what computes a prompt.
type silenceLook legWatch

// Look implements [liveness.Looker].
func (w *silenceLook) Look() (time.Duration, error) {
	silence, left := w.left()
	switch {
	case w.to.Asleep():
		return 0, &unresponsive{at: w.to.Member.ID, phase: w.leg, sleep: true}
	case left < 0:
		return 0, &unresponsive{at: w.to.Member.ID, phase: w.leg, since: silence}
	}
	return min(left+time.Millisecond, w.bound/4), nil
}

// left is how long the engine has been silent, and how long it may go on.
func (w *silenceLook) left() (silence, left time.Duration) {
	silence = w.to.Silence(time.Now())
	return silence, w.to.SilenceLimit(w.bound) - silence
}

// silenceLimit is the silence that says that an engine of the attempt stands still.
func (h *handoff) silenceLimit() time.Duration {
	cfg := h.cfg()
	poll := max(cfg.Pools.Prefill.PollInterval, cfg.Pools.Decode.PollInterval)
	return max((cfg.Connector.Lease-cfg.Connector.Margin)*2/3, 3*poll)
}
