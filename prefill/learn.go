package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// learn takes in that uncached tokens behind cached ones were answered took after they were sent. The queue
// is without them already.
func (p *Pool) learn(m *member, uncached, cached int, took time.Duration, now time.Time) {
	before := m.span.Add(uncached, cached, 0, took, now)
	m.fit.LearnPrompts(&p.fit, before)
	if took <= 0 || m.others.Count+m.remote.Requests > 0 { // others' work in between says nothing of ours
		m.span.Spoil()
	}
	if m.queue.count == 0 {
		m.fit.LearnPrompts(&p.fit, m.span.End())
	}
}

// gaveUp says that a prompt left the queue of m without an answer.
func (m *member) gaveUp() { m.span.GaveUp(m.queue.count == 0) }

// doubtful reports whether m, which has nothing to do, has answered nothing lately.
func (m *member) doubtful(now time.Time) bool { return now.Sub(m.span.Last()) > doubtAfter }

// doubtAfter is how long what was learned of a replica is not doubted.
const doubtAfter = 10 * time.Second

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) estimate.Pricing {
	if q.Seeded {
		return estimate.Pricing{Speed: p.settings.Speed.Or(estimate.DefaultSpeed())}
	}
	s := estimate.Pricing{Speed: p.speed(m)}
	if risk, eased := m.fit.Eased(now); eased {
		s.Measured, s.Risk = estimate.DefaultSpeed().WithPrefill(m.fit.Measured(&p.fit.SpeedFit)), risk
	}
	return s
}

// Prefills returns how long prefills take on the members together, as measured; zero: not known.
func (p *Pool) Prefills() estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	f, _ := p.fit.Of(&p.fit.SpeedFit)
	return f.Prefills()
}

// speed returns the best that is known of m: what was measured on m, or on the pool, and until enough was
// what the operator says, what was measured in the other pool, or the profile.
func (p *Pool) speed(m *member) estimate.Speed {
	profile := estimate.DefaultSpeed()
	if f, known := m.fit.Of(&p.fit.SpeedFit); known {
		return profile.WithPrefill(f)
	}
	return p.settings.Speed.Or(p.otherPool).Or(profile)
}
