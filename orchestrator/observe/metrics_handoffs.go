package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// HandoffMetrics describe what happened to KV blocks between the two legs.
type HandoffMetrics struct {
	Gap     prometheus.Observer
	Rebinds prometheus.Counter
	Params  *prometheus.CounterVec // reason
	Late    *prometheus.CounterVec // verdict

	Tokens   *Counters              // prefill, decode, kind
	Unmoved  *Counters              // prefill, decode
	LeftOut  *Counters              // decode
	GiveBack *prometheus.CounterVec // result
	Rescues  *prometheus.CounterVec // result
}

func newHandoffMetrics(f *Families) HandoffMetrics {
	m := HandoffMetrics{
		Gap: f.Histogram("tandem_handoff_gap_seconds",
			"Seconds from the last byte of the prefill answer to the decode request being written.",
			handoffBuckets()),
		Rebinds: f.Single("tandem_decode_rebinds_total",
			"Requests whose decode replica changed when the prefill answer came."),
		Params: f.Counter("tandem_transfer_params_refused_total",
			"Prefill answers whose transfer parameters were not used, by reason.", "reason"),
		Late: f.Counter("tandem_late_answers_total", "Split answers that began after the lease could have "+
			"ended, by verdict on whether the blocks were read in time.", "verdict"),
		Tokens: f.Counters("tandem_handoff_tokens_total",
			"Prompt tokens of split requests that ended well, by pair. planned: to be transferred. moved: cached "+
				"on the decode engine beyond its own match, by its report. unsure: the same if its own match is "+
				"unknown. missed: prefilled, and not delivered by the store.",
			"prefill", "decode", "kind"),
		Unmoved: f.Counters("tandem_handoff_unmoved_total",
			"Split requests that ended well without a transfer.", "prefill", "decode"),
		LeftOut: f.Counters("tandem_prefill_legs_left_out_total",
			"Requests that went to a decode replica alone, because the shared store had the whole prompt.", "decode"),
		GiveBack: f.Counter("tandem_give_back_total",
			"Leases of prefill blocks that were given back unused, by result.", "result"),
	}
	m.Rescues = f.Counter("tandem_rescues_total",
		"Prompts prefilled again to free the blocks of a decode leg that waited for them, by result.", "result")
	Begin(m.Rescues, "prefilled", "failed", "restarted")
	Begin(m.Params, "bad_params", "expired", "foreign", "taken")
	Begin(m.GiveBack, "freed", "too_many")
	return m
}

// handoffBuckets are fine in the range of a good handoff: tens to hundreds of microseconds.
func handoffBuckets() []float64 {
	return append(prometheus.ExponentialBuckets(10e-6, 1.25, 24), .003, .01, .03, .1, .3, 1, 3, 15)
}
