package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// DecisionMetrics describe the reasons of plans, and count records that are missing in the decision file.
type DecisionMetrics struct {
	Booked    *Counters // mode, reason
	Partial   *Counters // reason
	Forced    prometheus.Counter
	Unwritten *prometheus.CounterVec // reason
	Pieces    *prometheus.CounterVec // result
	Predicted prometheus.Observer
}

func newDecisionMetrics(f *Families) DecisionMetrics {
	m := DecisionMetrics{
		Booked: f.Counters("tandem_decisions_total",
			"Plans that were booked, by mode and the term that decided.", "mode", "reason"),
		Partial: f.Counters("tandem_decisions_partial_total", "Plans booked while the index of a "+
			"possible replica was unknown (blind) or cut for its byte budget (truncated).", "reason"),
		Forced: f.Single("tandem_ejection_overridden_total",
			"Plans that used ejected replicas or pairs because too few others were left."),
		Unwritten: f.Counter("tandem_decisions_unwritten_total",
			"Records that are missing in decisions.file: the disk was slow, or a write failed.", "reason"),
		Pieces: f.Counter("tandem_prefill_pieces_total",
			"Pieces of prompts that decode replicas compute themselves, by result.", "result"),
		Predicted: f.Histogram("tandem_predicted_ttft_seconds", "TTFT as predicted at a request's plan, wait for "+
			"room included; also of requests that are refused as too late.", secondsBuckets),
	}
	Begin(m.Partial, "blind", "truncated")
	Begin(m.Unwritten, "slow", "failed")
	return m
}

// Count counts a plan that was booked.
func (m *DecisionMetrics) Count(r *Record, d *planner.Decision) {
	m.Booked.WithLabelValues(r.Mode, reasonLabel(r, d)).Inc()
	if d.Units == planner.InMilliseconds {
		m.Predicted.Observe(d.Time.Sub(r.Time).Seconds() + d.TTFT/1e3)
	}
	if d.Forced != "" {
		m.Forced.Inc()
	}
	if d.Blind > 0 {
		m.Partial.WithLabelValues("blind").Inc()
	}
	if d.Truncated > 0 {
		m.Partial.WithLabelValues("truncated").Inc()
	}
}

// reasonLabel returns one word for the reason of a plan, for the metric: the decision's own word, or that the
// request could only go whole.
func reasonLabel(r *Record, d *planner.Decision) string {
	if r.Mode == "unsplit" {
		return "cannot_split"
	}
	return d.Why
}
