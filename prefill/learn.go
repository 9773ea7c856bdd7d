package prefill

import (
	"time"

	"tandem/scoring"
)

// span is the answers of one busy period of a replica, from when it was sent something to when all has been
// answered: only then is it sure which prompts the time was spent on. Several come out of one step, and a
// step computes the beginning of one prompt beside the end of another. Guarded by the lock of the pool.
type span struct {
	last    time.Time // newest answer, in the span or before
	start   time.Time // of the work on the first prompt in it
	step    time.Time // first answer of those that came out of the same step as the newest
	parts   [3]float64
	n       int
	spoiled bool // by a prompt that was given up: nobody knows how much of the time was spent on it
}

const (
	spanLong  = time.Second           // is a span after which it ends with a step although there is more to do
	stepApart = 2 * time.Millisecond  // is less than two steps' answers are apart
	stepLong  = 20 * time.Millisecond // answers further apart are of different steps, whatever came in between
)

// learn takes in that uncached tokens behind cached ones were answered took after they were sent. The queue
// is without them already.
func (p *Pool) learn(m *member, uncached, cached int, took time.Duration, now time.Time) {
	s, begun := &m.span, now.Add(-took)
	nextStep := s.n == 0 || now.Sub(s.last) >= stepApart || now.Sub(s.step) >= stepLong
	if s.n > 0 && nextStep && s.last.Sub(s.start) >= spanLong {
		p.endSpan(m)
	}
	switch idle := begun.Sub(s.last); {
	case s.n == 0 && idle > 0:
		s.start, s.parts = begun, [3]float64{}
	case s.n == 0:
		s.start, s.parts = s.last, [3]float64{}
	case idle > 0:
		s.start = s.start.Add(idle)
	}
	parts := scoring.DefaultSpeed().PrefillParts(uncached, cached)
	if nextStep {
		s.step = now
	} else {
		parts[0] = 0 // is paid once a step
	}
	for i, part := range parts {
		s.parts[i] += part
	}
	s.n++
	s.last = now
	if took <= 0 || m.others.Count+m.remote.Requests > 0 { // others' work in between says nothing of ours
		s.spoiled = true
	}
	if m.queue.count == 0 {
		p.endSpan(m)
	}
}

// endSpan learns from the span of m, unless it is spoiled.
func (p *Pool) endSpan(m *member) {
	s := &m.span
	if elapsed := s.last.Sub(s.start).Seconds(); !s.spoiled && s.n > 0 {
		m.fit.LearnAt(s.parts, elapsed, s.last)
		p.fit.LearnAt(s.parts, elapsed, s.last)
	}
	s.n, s.spoiled = 0, false
}

// gaveUp says that a prompt left the queue of m without an answer.
func (m *member) gaveUp() {
	m.span.spoiled = m.queue.count > 0
	if m.queue.count == 0 {
		m.span.n = 0
	}
}

// doubtful reports whether m, which has nothing to do, has answered nothing lately.
func (m *member) doubtful(now time.Time) bool { return now.Sub(m.span.last) > doubtAfter }

// doubtAfter is how long what was learned of a replica is not doubted.
const doubtAfter = 10 * time.Second

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) scoring.Pricing {
	if q.Seeded || p.settings.Speed.KnowsPrefill() {
		return scoring.Pricing{Speed: p.settings.Speed.Or(scoring.DefaultSpeed())}
	}
	s := scoring.Pricing{Speed: p.speed(m)}
	if risk, eased := m.fit.Eased(now); eased {
		s.Measured, s.Risk = scoring.DefaultSpeed().WithPrefill(m.fit.Measured(&p.fit.SpeedFit)), risk
	}
	return s
}

// speed returns the best that is known of m: what the operator says, what was measured on m, or on the pool.
func (p *Pool) speed(m *member) scoring.Speed {
	s := scoring.DefaultSpeed()
	if p.settings.Speed.KnowsPrefill() {
		return p.settings.Speed.Or(s)
	}
	if f, known := m.fit.Of(&p.fit.SpeedFit); known {
		return s.WithPrefill(f)
	}
	return s
}
