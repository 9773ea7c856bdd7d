package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// sequences is how many sequences members run at once. What each member has shown stands in the member, and
// what the members of one model have shown stands in the model's lesson.
type sequences struct {
	learned *lessons
}

// learn takes in what a report of m says of its sequences, if the report was scraped.
func (s *sequences) learn(m *member, l *replica.Load, all []*member, now time.Time) {
	if l.Source == replica.Metrics && l.Running >= 0 && l.Waiting >= 0 {
		m.most.Learn(estimate.Occupancy{
			Running: l.Running, Queued: l.Waiting - max(l.Loading, 0), Usage: l.Usage,
			Largest: m.largestWaiting(l), Prompts: m.local.wait(now),
		}, now)
	}
	of := s.learned.of(m)
	of.Also.most = 0
	for _, one := range s.learned.alike(of, all) {
		of.Also.most = max(of.Also.most, one.most.Measured())
	}
}

// of returns how many sequences m runs at once; 0 is unknown.
func (s *sequences) of(m *member) int { return m.most.Believed(s.learned.of(m).Also.most) }

// ran is the most sequences that any replica with the model of m has run.
func (s *sequences) ran(m *member, all []*member) (most int) {
	for _, one := range s.learned.alike(s.learned.of(m), all) {
		most = max(most, one.most.Ran())
	}
	return most
}
