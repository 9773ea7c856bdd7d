package estimate

import (
	"math"
	"time"
)

// DecayingFit is the SpeedFit of one engine and the time of its newest sample. Without samples the fit is
// believed less and less: an engine that was measured slow while its machine was busy gets no requests, so
// that no sample would correct the fit. The zero value is ready. Not safe for concurrent use.
type DecayingFit struct {
	learned  time.Time  // newest sample
	measured [3]float64 // factors as of the newest sample
	SpeedFit
	voted time.Time // newest one with a vote of its own
	eased time.Time // until when the time since has been taken into account
}

// A DecayingFit keeps its word for easeAfter, then goes half of the way to the others' in each easeHalf.
// Samples within voteApart are of one moment.
const (
	easeAfter = 10 * time.Second
	easeHalf  = 20 * time.Second
	voteApart = time.Second

	trialShare = 0.1 // of the time since it was tested, is what one request may lose by testing an engine
)

// InDoubt reports whether a value whose newest sample came at last is in doubt by now.
func InDoubt(last, now time.Time) bool { return now.Sub(last) > easeAfter }

// LearnAt is [SpeedFit.Learn] with the time of the sample.
func (m *DecayingFit) LearnAt(s Sample) {
	apart := s.At.Sub(m.voted) >= voteApart
	if apart {
		m.voted = s.At
	}
	m.learn(s.Work, s.Low, apart)
	m.refresh(s.At)
}

// refresh notes that the factors are as they were measured now.
func (m *DecayingFit) refresh(now time.Time) {
	m.learned = now
	m.eased = now.Add(easeAfter)
	m.measured = m.factor
}

// learnRun takes in votes of as many separate moments, each of which has a vote however little time lies
// between them. They are taken for what single samples are like from now on.
func (m *DecayingFit) learnRun(run []vote, now time.Time) {
	for _, v := range run {
		m.learn(v.parts, v.took, true)
	}
	for _, v := range run {
		m.settle(m.ratio(v) - 1)
	}
	m.voted = now
	m.refresh(now)
}

// Expects returns the seconds that the work is measured to take, however long ago.
func (m *DecayingFit) Expects(parts Work) float64 { return Factors(m.measured).sum(parts) }

// Learned returns when the newest sample came, the zero time before the first.
func (m *DecayingFit) Learned() time.Time { return m.learned }

// Ease moves m toward the SpeedFit of the whole pool as far as the time without a sample asks. To be called
// now and then.
func (m *DecayingFit) Ease(toward *SpeedFit, now time.Time) {
	if m.learned.IsZero() || !now.After(m.eased) || !toward.Known() {
		return
	}
	keep := math.Exp2(-float64(now.Sub(m.eased)) / float64(easeHalf))
	m.eased = now
	for i := range m.factor {
		m.factor[i] = math.Exp(keep*math.Log(m.at(i)) + (1-keep)*math.Log(toward.at(i)))
	}
}

// Eased reports whether [DecayingFit.Ease] has moved m, and how many seconds a request may lose that tests
// whether the measured speed still holds.
func (m *DecayingFit) Eased(now time.Time) (risk float64, eased bool) {
	if m.learned.IsZero() || m.factor == m.measured {
		return 0, false
	}
	return trialShare * now.Sub(m.learned).Seconds(), true
}

// Recall undoes the last [DecayingFit.Ease]: a request was sent to test the engine, and no other request is
// to follow before the result is known.
func (m *DecayingFit) Recall(now time.Time) {
	if !m.learned.IsZero() && now.After(m.learned.Add(easeAfter)) {
		m.factor, m.eased = m.measured, now.Add(easeAfter)
	}
}

// Measured returns m's factors as they were measured, whatever time has passed since, or those of the pool
// where nothing was.
func (m *DecayingFit) Measured(pool *SpeedFit) Factors {
	f := m.SpeedFit
	f.factor = m.measured
	return f.Within(pool)
}
