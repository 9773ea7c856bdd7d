package orchestrator

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// stuck is a transfer that does not end although both of its engines are well: the network between them
// drops what they send. vLLM 0.32 gives a transfer no time-out, and TCP waits for a quarter of an hour. No
// heartbeat arrives either, so that the blocks are given to others when the lease is over, and an answer that
// comes after all is made of theirs.
//
// That a decode leg waits does not tell a stuck transfer from a busy engine. A canary does: it asks the
// decode engine for an answer of its own first, and then for one from blocks. So a leg that waits has its
// pair tried, and is given up when that trial gets stuck, too.
type stuck struct {
	pair  outlier.Pair
	after time.Duration
}

func (s *stuck) Error() string {
	after := s.after.Round(time.Millisecond)
	return fmt.Sprintf("the blocks of %s did not reach %s within %v", s.pair.Prefill, s.pair.Decode, after)
}

// transferWatch asks for trials of the pair of a decode leg that waits for its first content. One goroutine
// uses it at a time. The zero value is that of a leg for which nothing is transferred.
type transferWatch struct {
	h    *handoff
	to   *fleet.Endpoint
	pair outlier.Pair
	sent time.Time
	wait time.Duration // from one trial to the next; it doubles, since a long answer waits, too
	next time.Time
}

// watchTransfer watches the transfer of a decode leg that is sent now.
func (h *handoff) watchTransfer(to *fleet.Endpoint, wait time.Duration, now time.Time) transferWatch {
	if !h.sentParams {
		return transferWatch{}
	}
	pair := outlier.Pair{Prefill: h.b.Prefill.ID, Decode: h.b.Decode.ID}
	return transferWatch{h: h, to: to, pair: pair, sent: now, wait: wait, next: now.Add(wait)}
}

// look reports that the transfer is stuck.
func (t *transferWatch) look(now time.Time) *stuck {
	if t.h == nil {
		return nil
	}
	j, waits := t.h.j, now.Sub(t.sent)
	if j.planner.Outliers().StuckSince(t.pair, t.sent) {
		return &stuck{t.pair, waits}
	}
	if now.Before(t.next) {
		return nil
	}
	if !t.to.Transfers().BeganSince(t.pair, now.Add(-t.wait)) && j.planner.Outliers().Suspect(t.pair, now) {
		j.log.Info("a pair is tried, since a request waits for its blocks",
			"prefill", string(t.pair.Prefill), "decode", string(t.pair.Decode), "waits", waits.String())
	}
	t.wait *= 2
	t.next = now.Add(t.wait)
	return nil
}
