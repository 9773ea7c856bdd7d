package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Phase is a part of a request's life that is timed.
type Phase uint8

const (
	PhaseTokenize Phase = iota
	PhaseQueue
	PhasePlan
	PhasePrefill
	PhaseHandoff
	PhaseFirst
	PhaseTotal
	phaseCount
)

var PhaseNames = [phaseCount]string{"tokenize", "queue", "plan", "prefill", "handoff", "first", "total"}

// PhaseMetrics tell how long requests spent in each phase.
type PhaseMetrics [phaseCount]prometheus.Observer

func newPhaseMetrics(f *Families) (m PhaseMetrics) {
	of := f.Histograms("tandem_phase_seconds", "Seconds a request spent in a phase.", secondsBuckets, "phase")
	for i, name := range PhaseNames {
		m[i] = of.WithLabelValues(name)
	}
	return m
}

func (m *PhaseMetrics) Observe(p Phase, d time.Duration) { m[p].Observe(d.Seconds()) }
