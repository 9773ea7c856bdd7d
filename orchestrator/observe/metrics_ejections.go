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
			"Times that a replica was kept out since it failed too often, by the leg that failed.", "pool",
			"replica", "leg"),
		Pairs: f.Counter("tandem_pair_ejections_total",
			"Times that a pair was kept out since KV blocks did not come over between its replicas.", "prefill",
			"decode"),
		Trials: f.Counter("tandem_trials_total",
			"Requests of the router's own to replicas and pairs that are ejected or suspected, by result.",
			"result"),
	}
}

// Begin makes the series of a replica that is new, or has another name, at 0: see [begin].
func (m *EjectionMetrics) Begin(r *replica.Replica) {
	legs := []outlier.Leg{outlier.Prefill}
	if r.Role == replica.Decode {
		legs = []outlier.Leg{outlier.Decode, outlier.Whole}
	}
	for _, leg := range legs {
		m.Replicas.WithLabelValues(r.Role.String(), string(r.ID), leg.String())
	}
}
