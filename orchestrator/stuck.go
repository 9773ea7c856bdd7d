package orchestrator

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// transferWatch asks for trials of the pair of a decode leg that waits for its first content. One goroutine
// uses it at a time. The zero value is for a leg without a transfer.
type transferWatch struct {
	*env // nil: nothing is transferred
	pair outlier.Pair
	sent time.Time
	wait time.Duration // time between two trials; it doubles, since a long answer also waits
	next time.Time
}

// look returns a failure if the transfer to a decode engine is stuck.
func (t *transferWatch) look(to *fleet.Endpoint, now time.Time) *stuck {
	if t.env == nil {
		return nil
	}
	outliers, waits := t.planner.Outliers(), now.Sub(t.sent)
	if outliers.StuckSince(t.pair, t.sent) {
		return &stuck{t.pair, waits}
	}
	if now.Before(t.next) {
		return nil
	}
	if !to.Transfers().BeganSince(t.pair, now.Add(-t.wait)) && outliers.Suspect(t.pair, now) {
		t.log.Info("a pair is tried, since a request waits for its blocks",
			"prefill", string(t.pair.Prefill), "decode", string(t.pair.Decode), "waits", waits.String())
	}
	t.wait *= 2
	t.next = now.Add(t.wait)
	return nil
}

// overDecodeLeg watches a decode leg until its first content. It calls end if one of the leg's engines is
// silent, or if the transfer of its blocks is stuck. A silent prefill engine counts only early in the leg:
// later its blocks have been read.
func (w *legWatch) overDecodeLeg(end context.CancelCauseFunc) *liveness.Watchdog {
	w.leg, w.sent = phaseDecode, w.clock.Running(time.Now())
	w.Watch(w.bound/2, end, (*decodeLegLook)(w))
	return &w.Watchdog
}

// decodeLegLook watches the engines of a decode leg.
type decodeLegLook legWatch

// Look implements [liveness.Looker].
func (w *decodeLegLook) Look() (time.Duration, error) {
	now := time.Now()
	if stuck := w.transfer.look(w.to, now); stuck != nil {
		return 0, stuck
	}
	if err := w.pull.late(w.leg, w.bound, now); err != nil {
		return 0, err
	}
	at := w.to.Member.ID
	if w.to.Asleep() {
		return 0, &unresponsive{at: at, phase: phaseDecode, sleep: true}
	}
	if silence := w.to.Silence(now); silence > w.to.SilenceLimit(w.bound) {
		return 0, &unresponsive{at: at, phase: phaseDecode, since: silence}
	}
	if w.from == nil { // the decode engine computes the prompt itself
		return w.bound / 4, nil
	}
	silence := w.from.Silence(now)
	if early := w.clock.Running(now)-silence < w.sent+w.bound; early && silence > w.from.SilenceLimit(w.bound) {
		return 0, &unresponsive{at: w.from.Member.ID, phase: phasePrefill, since: silence}
	}
	return w.bound / 4, nil
}
