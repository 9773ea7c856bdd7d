package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file is how many sequences a member runs at once, and how long a request waits for its turn.

// learnSequences takes in what a report of m says of its sequences, if the report was scraped.
func (p *Pool) learnSequences(m *member, l *replica.Load, now time.Time) {
	if l.Source == replica.Metrics && l.Running >= 0 && l.Waiting >= 0 {
		m.most.Learn(estimate.Occupancy{
			Running: l.Running, Queued: l.Waiting - max(l.Loading, 0), Usage: l.Usage,
			Largest: m.largestWaiting(l), Prompts: m.local.wait(now),
		}, now)
	}
	p.mostRun = 0
	for _, one := range p.members.All {
		p.mostRun = max(p.mostRun, one.most.Measured())
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

// mostOf returns how many sequences m runs at once; 0 is unknown.
func (p *Pool) mostOf(m *member) int { return m.most.Believed(p.mostRun) }

// runSlotIn returns the expected time until so many more sequences may run on m, behind all earlier bookings.
// It is 0 if the sequences may run now, or if the engine's maximum is unknown.
func (p *Pool) runSlotIn(m *member, a *ledger.Headroom, sequences int) time.Duration {
	most := p.mostOf(m)
	if most == 0 {
		return 0
	}
	over := m.batch() + m.account.Queued + m.remote.Queued + atMost(sequences, most) - most
	if over <= 0 {
		return 0
	}
	return seconds(min(p.slotsIn(m, a, over, most), ledger.MaxRoomWait.Seconds()))
}

// slotsIn returns the seconds until so many of the most sequences that m runs at a time should have ended.
func (p *Pool) slotsIn(m *member, a *ledger.Headroom, sequences, most int) float64 {
	return p.life(m, a) * float64(sequences) / float64(most)
}

// atMost returns how many sequences of a request must run at once: all, as far as the limit of m allows.
func atMost(sequences, most int) int { return max(min(sequences, most), 1) }

// life is the usual seconds of an answer on m, which computes prompts meanwhile.
func (p *Pool) life(m *member, a *ledger.Headroom) float64 {
	batch := m.batch()
	if most := p.mostOf(m); most > 0 {
		batch = min(batch, most)
	}
	tokens := max(a.Used*m.cache().blockSize(), int(m.reads(float64(batch)))) // promised blocks included
	return float64(p.learned.lengths.Usual()) * p.learned.speed(m).Step(batch, tokens) * m.learned.PerToken()
}

// mostRan is the most sequences that any replica of the pool has run.
func (p *Pool) mostRan() (most int) {
	for _, m := range p.members.All {
		most = max(most, m.most.Ran())
	}
	return most
}
