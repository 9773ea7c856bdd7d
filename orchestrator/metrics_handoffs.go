package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"
)

// handoffMetrics tell what became of KV blocks between the two legs.
type handoffMetrics struct {
	gap     prometheus.Observer
	rebinds prometheus.Counter
	params  *prometheus.CounterVec // reason
	late    *prometheus.CounterVec // verdict

	tokens   *counters              // prefill, decode, kind
	unmoved  *counters              // prefill, decode
	giveBack *prometheus.CounterVec // result
}

func newHandoffMetrics(f *metricFamilies) handoffMetrics {
	m := handoffMetrics{
		gap: f.histogram("tandem_handoff_gap_seconds",
			"Seconds from the last byte of the prefill answer to the decode request being written.",
			handoffBuckets()),
		rebinds: f.single("tandem_decode_rebinds_total",
			"Requests whose decode replica changed when the prefill answer came."),
		params: f.counter("tandem_transfer_params_refused_total",
			"Prefill answers whose transfer parameters were not used, by reason.", "reason"),
		late: f.counter("tandem_late_answers_total", "Split answers that began after the lease could have "+
			"ended, by verdict on whether the blocks were read in time.", "verdict"),
		tokens: f.counters("tandem_handoff_tokens_total",
			"Prompt tokens of split requests that ended well, by pair: planned to be transferred; moved, by what "+
				"the decode engine says it had cached beyond what it held; and unsure, the same where it is not known "+
				"what it held.",
			"prefill", "decode", "kind"),
		unmoved: f.counters("tandem_handoff_unmoved_total",
			"Split requests that ended well, and of whose prompt nothing was transferred.", "prefill", "decode"),
		giveBack: f.counter("tandem_give_back_total",
			"Leases of prefill blocks that were given back unused, by result.", "result"),
	}
	begin(m.params, "bad_params", "expired", "foreign", "taken")
	begin(m.giveBack, "freed", "too_many")
	return m
}

// handoffBuckets are fine where the handoff should be: tens to hundreds of microseconds.
func handoffBuckets() []float64 {
	return append(prometheus.ExponentialBuckets(10e-6, 1.25, 24), .003, .01, .03, .1, .3, 1, 3, 15)
}
