package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// learn measures m by an answer: its uncached tokens behind cached tokens took the given time after the
// sending of the request. The prompt has left the queue before.
func (p *Pool) learn(m *member, uncached, cached int, took time.Duration, now time.Time) {
	p.learned.Computed(&m.learned, uncached, cached, 0, took, now)
	if took <= 0 || m.Others.Count+m.remote.Requests > 0 { // others' work in between says nothing of ours
		m.learned.Spoil()
	}
	if m.queue.count == 0 {
		p.learned.Idle(&m.learned)
	}
}

// gaveUp says that a prompt left the queue of m without an answer.
func (m *member) gaveUp() { m.learned.GaveUp(m.queue.count == 0) }

// doubtful reports whether m, which has nothing to do, has answered nothing lately.
func (m *member) doubtful(now time.Time) bool { return estimate.InDoubt(m.learned.Last(), now) }

// pricing returns the speed of m that a plan is priced with.
func (p *Pool) pricing(m *member, now time.Time) (s estimate.Pricing) {
	s.Speed = p.speed(m)
	p.learned.Price(&s, &m.learned, now)
	return s
}

// Prefills returns how long prefills take on the members together, as measured; zero: not known.
func (p *Pool) Prefills() estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.MeasuredPrefills()
}

// speed returns the best that is known of m.
func (p *Pool) speed(m *member) estimate.Speed { return p.learned.PrefillSpeed(&m.learned) }
