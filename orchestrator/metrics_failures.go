package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// failureMetrics tell which attempts failed, and what was tried instead.
type failureMetrics struct {
	attempts  *prometheus.CounterVec // pool, replica, leg, kind
	retries   *prometheus.CounterVec // phase
	continued *prometheus.CounterVec // outcome
}

func newFailureMetrics(f *metricFamilies) failureMetrics {
	m := failureMetrics{
		attempts: f.counter("tandem_attempt_failures_total",
			"Failed attempts that are held against a replica, by its leg and the kind of failure.", "pool",
			"replica", "leg", "kind"),
		retries: f.counter("tandem_retries_total",
			"Second attempts before the first byte, by the phase that failed.", "phase"),
		continued: f.counter("tandem_continued_total",
			"Streams that broke off behind their first content and may go on elsewhere, by what came of it.",
			"outcome"),
	}
	begin(m.retries, "tokenize", "prefill", "handoff", "decode", "stream")
	begin(m.continued, wentOn, wasComplete, notPossible, tooOften, noBudget, diverged, nobody, clientLeft)
	return m
}

// count counts an attempt against whom it is held. That of a pair counts as its decode replica's.
func (m *failureMetrics) count(b *planner.Booking, f planner.Fault) {
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
	m.attempts.WithLabelValues(at.Role.String(), string(at.ID), leg, f.Kind.String()).Inc()
}
