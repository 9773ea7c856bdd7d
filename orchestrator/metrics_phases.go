package orchestrator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// phase is a part of a request's life that is timed.
type phase uint8

const (
	phaseTokenize phase = iota
	phaseQueue
	phasePlan
	phasePrefill
	phaseHandoff
	phaseFirst
	phaseTotal
	phaseCount
)

var phaseNames = [phaseCount]string{"tokenize", "queue", "plan", "prefill", "handoff", "first", "total"}

// phaseMetrics tell how long requests spent in each phase.
type phaseMetrics [phaseCount]prometheus.Observer

func newPhaseMetrics(f *metricFamilies) (m phaseMetrics) {
	of := f.histograms("tandem_phase_seconds", "Seconds a request spent in a phase.", secondsBuckets, "phase")
	for i, name := range phaseNames {
		m[i] = of.WithLabelValues(name)
	}
	return m
}

func (m *phaseMetrics) observe(p phase, d time.Duration) { m[p].Observe(d.Seconds()) }
