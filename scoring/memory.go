package scoring

import (
	"math"
	"time"
)

// Memory is the Fit of one engine and how fresh it is. What is not tested any more is believed less and less: an engine that was measured slow while its
// machine was busy gets no requests, so nothing would ever correct it. The zero value is ready. Not safe for concurrent use.
type Memory struct {
	Fit
	learned time.Time // newest sample
	eased   time.Time // until when the time since has been taken into account
}

// A Memory keeps its word for easeAfter, then goes half of the way to the others' in each easeHalf.
const (
	easeAfter = 10 * time.Second
	easeHalf  = 20 * time.Second
)

// LearnAt is [Fit.Learn] at the time now.
func (m *Memory) LearnAt(parts [3]float64, took float64, now time.Time) {
	m.Learn(parts, took)
	m.learned, m.eased = now, now.Add(easeAfter)
}

// Ease moves m toward the Fit of the whole pool as far as the time without a sample asks. To be called now and then.
func (m *Memory) Ease(toward *Fit, now time.Time) {
	if m.learned.IsZero() || !now.After(m.eased) || !toward.Known() {
		return
	}
	keep := math.Exp2(-float64(now.Sub(m.eased)) / float64(easeHalf))
	m.eased = now
	for i := range m.factor {
		m.factor[i] = math.Exp(keep*math.Log(m.at(i)) + (1-keep)*math.Log(toward.at(i)))
	}
}
