package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// measured is what a member's own answers say of its speed.
type measured struct {
	busy    estimate.BusySpan    // with local prefills, of which prefill is learned
	prefill estimate.DecayingFit // local prefills
	steps   estimate.DecayingFit // decode steps
	streams pace                 // of those under way, of which steps are learned too
	own     ownSteps             // that the engine takes for a piece of a prompt
	heldUp  float64              // seconds for prompts, for each second of decode steps of late
	// Seconds for which it makes no step, for each token whose blocks it reads from elsewhere; and all of them.
	posting, posted float64
}

// state returns what is known, as it outlives a process; false where that is nothing.
func (m *measured) state() (s Speeds, known bool) {
	if f, ok := m.prefill.State(); ok {
		s.Prefill, known = &f, true
	}
	if f, ok := m.steps.State(); ok {
		s.Steps, known = &f, true
	}
	return s, known
}

// restore lets it begin with what was measured before, where nothing was measured yet. It reports whether
// anything was taken.
func (m *measured) restore(s Speeds, now time.Time) (taken bool) {
	if s.Prefill != nil && m.prefill.Restore(*s.Prefill, now) {
		taken = true
	}
	if s.Steps != nil && m.steps.Restore(*s.Steps, now) {
		taken = true
	}
	return taken
}

// recall takes back that m was taken to be faster than it was measured, so that somebody would try it: now
// somebody does.
func (m *measured) recall(now time.Time) {
	m.prefill.Recall(now)
	m.steps.Recall(now)
}

// Prefills returns how long prefills take on the members together, as measured; zero: not known.
func (p *Pool) Prefills() estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	f, _ := p.prefills.Of(&p.prefills.SpeedFit)
	return f.Prefills()
}

// speed returns the best that is known of m: of each half what was measured on m, or on the pool, and until
// enough was what the operator says, or the profile. Of prefills what was measured in the other pool comes
// before the profile: its engines have the same model. Both halves follow what is measured: where one did
// not, and were off, the other one would take up all of its error, and could be learned to be nothing.
func (p *Pool) speed(m *member) estimate.Speed {
	profile := estimate.DefaultSpeed()
	s := p.settings.Speed.Or(p.otherPool).Or(profile)
	if f, known := m.measured.prefill.Of(&p.prefills.SpeedFit); known {
		s = profile.WithPrefill(f).PrefillHalf().Or(s)
	}
	if f, known := m.measured.steps.Of(&p.steps.SpeedFit); known {
		s = profile.WithDecode(f).DecodeHalf().Or(s)
	}
	return s
}

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) estimate.Pricing {
	if q.Seeded {
		return estimate.Pricing{Speed: p.settings.Speed.Or(estimate.DefaultSpeed())}
	}
	s := estimate.Pricing{Speed: p.speed(m)}
	if risk, eased := m.measured.prefill.Eased(now); eased {
		measured := m.measured.prefill.Measured(&p.prefills.SpeedFit)
		s.Measured, s.Risk = estimate.DefaultSpeed().WithPrefill(measured), risk
	}
	return s
}
