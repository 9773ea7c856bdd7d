package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// SpeedOf returns what was measured of id; false where that is too little.
func (p *Pool) SpeedOf(id replica.ID) (s scoring.FitState, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return s, false
	}
	return m.fit.State()
}

// RestoreSpeed lets id, of which nothing was measured yet, begin with what was measured before.
func (p *Pool) RestoreSpeed(id replica.ID, s scoring.FitState, now time.Time) bool {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	return ok && m.fit.Restore(s, now)
}
