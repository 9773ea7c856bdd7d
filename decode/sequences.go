package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// sequences is how many sequences members run at once. What each member has shown stands in the member.
type sequences struct {
	most int // that a member runs at a time, the most learned of one; 0 unknown
}

// learn takes in what a report of m says of its sequences, if the report was scraped.
func (s *sequences) learn(m *member, l *replica.Load, all []*member, now time.Time) {
	if l.Source == replica.Metrics && l.Running >= 0 && l.Waiting >= 0 {
		m.most.Learn(estimate.Occupancy{
			Running: l.Running, Queued: l.Waiting - max(l.Loading, 0), Usage: l.Usage,
			Largest: m.largestWaiting(l), Prompts: m.local.wait(now),
		}, now)
	}
	s.most = 0
	for _, one := range all {
		s.most = max(s.most, one.most.Measured())
	}
}

// largestWaiting returns the share of m's KV cache that the largest waiting request of the report l may
// take: a request without a first token, or a preempted request. It is 0 if no request waits, if all waiting
// requests come from other clients, and if the capacity is unknown.
func (m *member) largestWaiting(l *replica.Load) float64 {
	if l.Waiting <= 0 || m.R.Facts.Blocks == 0 {
		return 0
	}
	blocks := m.account.Preempted()
	for _, one := range m.account.Leases() {
		if one.AtEngine() && one.PromptState() != ledger.Answered {
			blocks = max(blocks, one.Blocks)
		}
	}
	return float64(blocks) / float64(m.R.Facts.Blocks)
}

// of returns how many sequences m runs at once; 0 is unknown.
func (s *sequences) of(m *member) int { return m.most.Believed(s.most) }

// ran is the most sequences that any replica of the pool has run.
func (s *sequences) ran(all []*member) (most int) {
	for _, m := range all {
		most = max(most, m.most.Ran())
	}
	return most
}
