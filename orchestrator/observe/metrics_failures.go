package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// FailureMetrics count failed attempts, and the attempts that followed.
type FailureMetrics struct {
	Attempts  *prometheus.CounterVec // pool, replica, leg, kind
	Retries   *prometheus.CounterVec // phase
	Continued *prometheus.CounterVec // outcome
}

func newFailureMetrics(f *Families) FailureMetrics {
	m := FailureMetrics{
		Attempts: f.Counter("tandem_attempt_failures_total",
			"Failed attempts that count against a replica, by leg and kind of failure.", "pool",
			"replica", "leg", "kind"),
		Retries: f.Counter("tandem_retries_total",
			"Second attempts before the first byte, by the phase that failed.", "phase"),
		Continued: f.Counter("tandem_continued_total",
			"Streams that broke off after the first content, with kept tokens, by outcome.",
			"outcome"),
	}
	Begin(m.Retries, "tokenize", "prefill", "handoff", "decode", "stream")
	return m
}

// Count counts an attempt for the replica that is blamed. A pair's failure counts for its decode replica.
func (m *FailureMetrics) Count(b *planner.Booking, f planner.Fault) {
	at, leg := &b.Decode, "whole"
	switch {
	case f.On == planner.Nobody:
		return
	case f.On == planner.OnPrefill:
		at, leg = &b.Prefill, "prefill"
	case f.On == planner.OnPair:
		leg = "pair"
	case b.Mode == planner.Split:
		leg = "decode"
	}
	m.Attempts.WithLabelValues(at.Role.String(), string(at.ID), leg, f.Kind.String()).Inc()
}
