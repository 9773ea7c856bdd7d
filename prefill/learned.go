package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// SpeedOf returns what was measured of id; false where that is too little.
func (p *Pool) SpeedOf(id replica.ID) (s estimate.FitState, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return s, false
	}
	return m.learned.Fit.State()
}

// RestoreSpeed lets id, of which nothing was measured yet, begin with what was measured before.
func (p *Pool) RestoreSpeed(id replica.ID, s estimate.FitState, now time.Time) bool {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	return ok && m.learned.Fit.Restore(s, now)
}
