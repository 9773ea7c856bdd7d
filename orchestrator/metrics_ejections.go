package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// ejectionMetrics tell who was kept out for its failures, and what trials of those found.
type ejectionMetrics struct {
	replicas *prometheus.CounterVec // pool, replica, leg
	pairs    *prometheus.CounterVec // prefill, decode
	trials   *prometheus.CounterVec // result
}

func newEjectionMetrics(f *metricFamilies) ejectionMetrics {
	return ejectionMetrics{
		replicas: f.counter("tandem_ejections_total",
			"Times that a replica was kept out since it failed too often, by the leg that failed.", "pool",
			"replica", "leg"),
		pairs: f.counter("tandem_pair_ejections_total",
			"Times that a pair was kept out since KV blocks did not come over between its replicas.", "prefill",
			"decode"),
		trials: f.counter("tandem_trials_total",
			"Requests of the router's own to replicas and pairs that are ejected or suspected, by result.",
			"result"),
	}
}

// begin makes the series of a replica that is new, or has another name, at 0: see [begin].
func (m *ejectionMetrics) begin(r *replica.Replica) {
	legs := []outlier.Leg{outlier.Prefill}
	if r.Role == replica.Decode {
		legs = []outlier.Leg{outlier.Decode, outlier.Whole}
	}
	for _, leg := range legs {
		m.replicas.WithLabelValues(r.Role.String(), string(r.ID), leg.String())
	}
}
