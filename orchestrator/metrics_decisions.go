package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// decisionMetrics tell how plans came about, and which records of them are missing in the file.
type decisionMetrics struct {
	booked    *counters // mode, reason
	partial   *counters // reason
	forced    prometheus.Counter
	shadow    *counters // verdict
	regret    prometheus.Observer
	unwritten *prometheus.CounterVec // reason
	pieces    *prometheus.CounterVec // result
}

func newDecisionMetrics(f *metricFamilies) decisionMetrics {
	m := decisionMetrics{
		booked: f.counters("tandem_decisions_total",
			"Plans that were booked, by mode and the term that decided.", "mode", "reason"),
		partial: f.counters("tandem_decisions_partial_total", "Plans booked while the index of a "+
			"possible replica was unknown (blind) or cut for its byte budget (truncated).", "reason"),
		forced: f.single("tandem_ejection_overridden_total",
			"Plans for which ejected replicas or pairs were used as they are, since too few others were left."),
		shadow: f.counters("tandem_shadow_decisions_total",
			"Plans by whether what was learned, which does not decide, would have chosen the same or one as good.",
			"verdict"),
		regret: f.histogram("tandem_shadow_regret_seconds",
			"By how much the plan that what was learned would have chosen is better, by what was learned.",
			secondsBuckets),
		unwritten: f.counter("tandem_decisions_unwritten_total",
			"Records that are missing in decisions.file: the disk was slow, or a write failed.", "reason"),
		pieces: f.counter("tandem_prefill_pieces_total",
			"Pieces of prompts that decode replicas compute themselves, by what became of them.", "result"),
	}
	begin(m.pieces, pieceComputed, pieceFailed, pieceLost, pieceCut)
	begin(m.partial, "blind", "truncated")
	begin(m.unwritten, "slow", "failed")
	return m
}

// count counts a plan that was booked.
func (m *decisionMetrics) count(r *Record, d *planner.Decision) {
	m.booked.WithLabelValues(r.Mode, reasonLabel(r, d)).Inc()
	if s := d.Shadow; s != nil {
		m.shadow.WithLabelValues(map[bool]string{true: "same", false: "other"}[s.Same]).Inc()
		m.regret.Observe(s.Regret / 1e3)
	}
	if d.Forced != "" {
		m.forced.Inc()
	}
	if d.Blind > 0 {
		m.partial.WithLabelValues("blind").Inc()
	}
	if d.Truncated > 0 {
		m.partial.WithLabelValues("truncated").Inc()
	}
}

// reasonLabel names in one word what made the plan good, for the metric: the decision's own word, or that it
// had no choice but to leave the request whole.
func reasonLabel(r *Record, d *planner.Decision) string {
	if r.Mode == "unsplit" {
		return "cannot_split"
	}
	return d.Why
}
