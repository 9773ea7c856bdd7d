package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters and histograms that requests move, by what they tell of; each group stands in a
// file of its own, metrics_*.go. What can be read from the pools at scrape time is in collect.go.
// docs/metrics.md explains every family; a test holds the two together.
//
// Safe for concurrent use. Children of the hot path are resolved once: see [series].
type metrics struct {
	requests  requestMetrics
	phases    phaseMetrics
	decisions decisionMetrics
	legs      legMetrics
	handoffs  handoffMetrics
	cache     cacheMetrics
	failures  failureMetrics
	ejections ejectionMetrics
	config    configMetrics
	answers   answerMetrics

	families *metricFamilies
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := &metricFamilies{reg: reg}
	return &metrics{
		requests:  newRequestMetrics(f),
		phases:    newPhaseMetrics(f),
		decisions: newDecisionMetrics(f),
		legs:      newLegMetrics(f),
		handoffs:  newHandoffMetrics(f),
		cache:     newCacheMetrics(f),
		failures:  newFailureMetrics(f),
		ejections: newEjectionMetrics(f),
		config:    newConfigMetrics(f),
		answers:   newAnswerMetrics(f),
		families:  f,
	}
}

// secondsBuckets are of times that requests take and wait.
var secondsBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
}
