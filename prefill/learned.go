package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// SpeedOf returns the measured speed of id; false where id has too few samples.
func (p *Pool) SpeedOf(id replica.ID) (s estimate.FitState, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return s, false
	}
	return m.learned.Fit.State()
}

// RestoreSpeed lets an unmeasured id begin with its speed from an earlier process.
func (p *Pool) RestoreSpeed(id replica.ID, s estimate.FitState, now time.Time) bool {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	return ok && m.learned.Fit.Restore(s, now)
}
