package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// EjectionMetrics describe which replicas and pairs were ejected, and the results of trials.
type EjectionMetrics struct {
	Replicas *prometheus.CounterVec // pool, replica, leg
	Pairs    *prometheus.CounterVec // prefill, decode
	Trials   *prometheus.CounterVec // result
}

func newEjectionMetrics(f *Families) EjectionMetrics {
	return EjectionMetrics{
		Replicas: f.Counter("tandem_ejections_total",
			"Ejections of a replica for failing too often, by the leg that failed.", "pool",
			"replica", "leg"),
		Pairs: f.Counter("tandem_pair_ejections_total",
			"Ejections of a pair because KV blocks did not arrive.", "prefill",
			"decode"),
		Trials: f.Counter("tandem_trials_total",
			"The router's own requests to ejected or suspected replicas and pairs, by result.",
			"result"),
	}
}

// Begin creates the series of a replica that is new, or has another name, at 0: see [Begin].
func (m *EjectionMetrics) Begin(r *replica.Replica) {
	legs := []outlier.Leg{outlier.Prefill}
	if r.Role == replica.Decode {
		legs = []outlier.Leg{outlier.Decode, outlier.Whole}
	}
	for _, leg := range legs {
		m.Replicas.WithLabelValues(r.Role.String(), string(r.ID), leg.String())
	}
}
