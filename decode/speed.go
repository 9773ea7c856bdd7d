package decode

import (
	"time"

	"tandem/scoring"
)

// speed returns the best that is known of m: what the operator says, what was measured on m, or on the pool.
func (p *Pool) speed(m *member) scoring.Speed {
	s := scoring.DefaultSpeed()
	if f, known := m.prefill.Of(&p.prefills.SpeedFit); known {
		s = s.WithPrefill(f)
	}
	if f, known := m.steps.Of(&p.steps.SpeedFit); known {
		s = s.WithDecode(f)
	}
	if said := &p.settings.Speed; said.KnowsPrefill() || said.KnowsDecode() {
		return said.Or(s)
	}
	return s
}

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) scoring.Pricing {
	if q.Seeded {
		return scoring.Pricing{Speed: p.settings.Speed.Or(scoring.DefaultSpeed())}
	}
	s := scoring.Pricing{Speed: p.speed(m)}
	if risk, eased := m.prefill.Eased(now); eased && !p.settings.Speed.KnowsPrefill() {
		s.Measured, s.Risk = scoring.DefaultSpeed().WithPrefill(m.prefill.Measured(&p.prefills.SpeedFit)), risk
	}
	return s
}
