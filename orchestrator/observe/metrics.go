package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics has the counters and histograms that requests change, in groups. Each group has its own file,
// metrics_*.go. Values that are read from the pools at scrape time are in collect.go. docs/metrics.md
// explains every family; a test compares both.
//
// Safe for concurrent use. Children of the hot path are resolved once: see [Series].
type Metrics struct {
	Requests  RequestMetrics
	Classes   ClassMetrics
	Phases    PhaseMetrics
	Decisions DecisionMetrics
	Legs      LegMetrics
	Handoffs  HandoffMetrics
	Cache     CacheMetrics
	Failures  FailureMetrics
	Ejections EjectionMetrics
	Config    ConfigMetrics
	Answers   AnswerMetrics
	Demand    *Demand

	Families *Families
}

// NewMetrics makes the families and registers them in reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := &Families{reg: reg, ofNames: map[string][]replicaFamily{}}
	return &Metrics{
		Requests:  newRequestMetrics(f),
		Classes:   newClassMetrics(f),
		Phases:    newPhaseMetrics(f),
		Decisions: newDecisionMetrics(f),
		Legs:      newLegMetrics(f),
		Handoffs:  newHandoffMetrics(f),
		Cache:     newCacheMetrics(f),
		Failures:  newFailureMetrics(f),
		Ejections: newEjectionMetrics(f),
		Config:    newConfigMetrics(f),
		Answers:   newAnswerMetrics(f),
		Demand:    &Demand{},
		Families:  f,
	}
}

// secondsBuckets are for durations of requests and waits.
var secondsBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
}
