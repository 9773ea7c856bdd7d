package orchestrator

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// legWatch watches the running leg of an attempt. Only one leg runs at a time.
type legWatch struct {
	liveness.Watchdog

	// These fields say what it watches. They are set before the watch begins.
	clock    *liveness.Clock
	to       *fleet.Endpoint
	from     *fleet.Endpoint // the engine whose blocks a decode leg reads; nil for none
	pull     *pullSource     // of a leg that computes a prompt; nil for none
	leg      phase
	bound    time.Duration // silenceLimit
	sent     time.Duration // for a decode leg, by the running clock
	transfer transferWatch
}

// pullSource is an engine from which a leg pulls blocks. vLLM ends a question to an engine whose core stands
// still after no time, and the prompt waits for the answer. So the leg is watched until something shows that
// the wait is over: the answer of a prefill leg or of a piece, or the first token.
type pullSource struct {
	*fleet.Endpoint
	until time.Time // then the leg is given up: the source is taken to stand still
}

// late returns the error of a leg whose source is silent or answers no question, nil while it may wait.
func (s *pullSource) late(leg phase, bound time.Duration, now time.Time) error {
	if s == nil {
		return nil
	}
	if silence, left := silenceOf(s.Endpoint, bound, now); left < 0 || now.After(s.until) {
		return &unresponsive{at: s.Member.ID, phase: leg, since: silence, source: true}
	}
	return nil
}

// overPull makes w watch the engine from which the leg pulls blocks, too.
func (w *legWatch) overPull(from *pullSource) *legWatch {
	w.pull = from
	return w
}

// overSilence watches an engine that computes a prompt, for a prefill leg or a piece, until its answer. It
// calls end if the engine is silent. If the engine continues later, it finds the connection closed and drops
// the prompt. Blocks that the engine keeps even so are freed at the end of their lease, since no decode
// engine has their parameters.
func (w *legWatch) overSilence(
	to *fleet.Endpoint, leg phase, end context.CancelCauseFunc,
) *liveness.Watchdog {
	w.to, w.leg = to, leg
	looks := (*silenceLook)(w)
	_, first := looks.left()
	w.Watch(max(first, w.bound/4), end, looks)
	return &w.Watchdog
}

// silenceLook watches the single engine that computes a prompt.
type silenceLook legWatch

// Look implements [liveness.Looker].
func (w *silenceLook) Look() (time.Duration, error) {
	silence, left := w.left()
	if err := w.pull.late(w.leg, w.bound, time.Now()); err != nil {
		return 0, err
	}
	switch {
	case w.to.Asleep():
		return 0, &unresponsive{at: w.to.Member.ID, phase: w.leg, sleep: true}
	case left < 0:
		return 0, &unresponsive{at: w.to.Member.ID, phase: w.leg, since: silence}
	}
	return min(left+time.Millisecond, w.bound/4), nil
}

// left returns how long the engine has been silent, and how long it may still be silent.
func (w *silenceLook) left() (silence, left time.Duration) {
	return silenceOf(w.to, w.bound, time.Now())
}

// silenceOf returns how long an engine has been silent, and how long it may still be silent.
func silenceOf(e *fleet.Endpoint, bound time.Duration, now time.Time) (silence, left time.Duration) {
	silence = e.Silence(now)
	return silence, e.SilenceLimit(bound) - silence
}

// silenceLimit is the length of silence after which an engine of an attempt counts as standing still.
func silenceLimit(cfg *config.Config) time.Duration {
	poll := max(cfg.Pools.Prefill.PollInterval, cfg.Pools.Decode.PollInterval)
	return max((cfg.Connector.Lease-cfg.Connector.Margin)*2/3, 3*poll)
}
