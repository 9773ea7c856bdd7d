package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// transferWatch asks for trials of the pair of a decode leg that waits for its first content. One goroutine
// uses it at a time. The zero value is that of a leg for which nothing is transferred.
type transferWatch struct {
	*env // nil: nothing is transferred
	pair outlier.Pair
	sent time.Time
	wait time.Duration // from one trial to the next; it doubles, since a long answer waits, too
	next time.Time
}

// look reports that the transfer to a decode engine is stuck.
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
