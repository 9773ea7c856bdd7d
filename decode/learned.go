package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file has the pool's learned values for the state file and for status.

// RestoreLengths gives groups without an answer so far the lengths that were saved before. believed (0..1) is
// the trust in the saved lengths. It returns the number of groups that got lengths.
func (p *Pool) RestoreLengths(all []estimate.GroupLengths, believed float64) (taken int) {
	p.members.Lock()
	defer p.members.Unlock()
	return p.lengths.Restore(all, believed)
}

// SpeedsOf returns what was measured of id; false where that is nothing.
func (p *Pool) SpeedsOf(id replica.ID) (s estimate.Speeds, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return s, false
	}
	return m.learned.State()
}

// RestoreSpeeds lets id, of which nothing was measured yet, begin with what was measured before. It reports
// whether anything was taken.
func (p *Pool) RestoreSpeeds(id replica.ID, s estimate.Speeds, now time.Time) (taken bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	return ok && m.learned.Restore(s, now)
}

// Prefills returns how long prefills take on the members together, as measured; zero: not known.
func (p *Pool) Prefills() estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.MeasuredPrefills()
}

// speed returns the best that is known of m.
func (p *Pool) speed(m *member) estimate.Speed { return p.learned.Speed(&m.learned) }

// pricing returns the speed of m that a plan is priced with.
func (p *Pool) pricing(m *member, now time.Time) (s estimate.Pricing) {
	s.Speed = p.speed(m)
	p.learned.Price(&s, &m.learned.Prompts, now)
	return s
}
