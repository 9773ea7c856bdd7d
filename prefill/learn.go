package prefill

import (
	"time"

	"tandem/scoring"
)

// span collects answers until they tell something of the speed. A replica that works through a queue answers one request after the other, so the time
// since the answer before is what a request took; where several came out of one batch the times mean something only together. Guarded by Pool.Mu.
type span struct {
	start time.Time // of the first request in it
	last  time.Time // newest answer, in the span or before
	parts [3]float64
	n     int
}

const (
	spanLong  = 0.5 // of its predicted time, is how long a span must have lasted to be believed
	spanLimit = 4   // answers, after which it is believed anyway
)

// learn takes in that uncached tokens behind cached ones were answered took after they were sent.
func (p *Pool) learn(m *member, uncached, cached int, took time.Duration, now time.Time) {
	s := &m.span
	sent := now.Add(-took)
	begun := sent
	if s.last.After(sent) {
		begun = s.last
	}
	s.last = now
	if took <= 0 || m.others.count+m.elsewhere.Requests > 0 { // others' work in between says nothing of ours
		s.n = 0
		return
	}
	profile := scoring.DefaultSpeed()
	if s.n == 0 {
		s.start, s.parts = begun, [3]float64{}
	}
	for i, part := range profile.PrefillParts(uncached, cached) {
		s.parts[i] += part
	}
	s.n++
	elapsed := now.Sub(s.start).Seconds()
	predicted := p.speed(m).Prefill(uncached, cached)
	if elapsed < spanLong*predicted && s.n < spanLimit {
		return
	}
	m.fit.LearnAt(s.parts, elapsed, now)
	p.fit.Learn(s.parts, elapsed)
	s.n = 0
}

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query) scoring.Speed {
	if q.Seeded {
		return p.settings.Speed.Or(scoring.DefaultSpeed())
	}
	return p.speed(m)
}

// speed returns the best that is known of m: what the operator says, what was measured on m, or on the pool.
func (p *Pool) speed(m *member) scoring.Speed {
	s := scoring.DefaultSpeed()
	switch {
	case p.settings.Speed.KnowsPrefill():
		return p.settings.Speed.Or(s)
	case m.fit.Known():
		return s.WithPrefill(&m.fit.Fit)
	case p.fit.Known():
		return s.WithPrefill(&p.fit)
	}
	return s
}
