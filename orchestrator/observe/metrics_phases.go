package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Phase is a part of a request's life that is timed.
type Phase uint8

// These are the phases, in the order in which a request passes them.
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

// PhaseNames are the values of the label phase.
var PhaseNames = [phaseCount]string{"tokenize", "queue", "plan", "prefill", "handoff", "first", "total"}

// PhaseMetrics measure how long requests spend in each phase.
type PhaseMetrics [phaseCount]prometheus.Observer

func newPhaseMetrics(f *Families) (m PhaseMetrics) {
	of := f.Histograms("tandem_phase_seconds", "Seconds a request spent in a phase.", secondsBuckets, "phase")
	for i, name := range PhaseNames {
		m[i] = of.WithLabelValues(name)
	}
	return m
}

// Observe counts a request that spent d in phase p. Safe from any goroutine.
func (m *PhaseMetrics) Observe(p Phase, d time.Duration) { m[p].Observe(d.Seconds()) }
