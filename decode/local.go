package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
)

// This file computes how long m takes for its local prompts: the prompts in its queue, and prompts that
// other routers report.

// front returns the local prompt that m computes first.
func (m *member) front() roster.Front {
	f := roster.Front{Ended: m.turns.EndedAt()}
	if first := m.turns.Head(); first != nil {
		f.Work, f.At = first.Predicted, first.Booked
	}
	return f
}

// queued returns the predicted time until the prompts of this router are done, given that the first has run
// for a while.
func (m *member) queued(now time.Time) time.Duration {
	if m.turns.Empty() {
		return 0
	}
	return m.turns.Work() - m.front().Ran(now)
}

// doubtful reports whether m prefills nothing now and last prefilled long ago.
func (m *member) doubtful(now time.Time) bool { return estimate.InDoubt(m.turns.LeftAt(), now) }

// prefillsNothing reports whether m computes no local prompt now, for any router.
func (m *member) prefillsNothing() bool {
	return m.turns.Empty() && !m.prefillsForOthers()
}

// prefillsForOthers reports whether m computes a prompt for another router.
func (m *member) prefillsForOthers() bool {
	return m.remote.Work > 0 || m.remote.First.Any()
}

// localWait returns the predicted time until m has computed all local prompts, of all routers.
func (m *member) localWait(now time.Time) time.Duration {
	if m.remote.Work > 0 || m.remote.First.Reported() {
		return m.remote.First.Left(m.turns.Work(), m.remote.Work, m.front(), now)
	}
	return m.queued(now)
}
