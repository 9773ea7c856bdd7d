package decode

import (
	"time"

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

// of returns how many sequences m runs at once; 0 is unknown.
func (s *sequences) of(m *member) int { return m.most.Believed(s.most) }

// ran is the most sequences that any replica of the pool has run.
func (s *sequences) ran(all []*member) (most int) {
	for _, m := range all {
		most = max(most, m.most.Ran())
	}
	return most
}
