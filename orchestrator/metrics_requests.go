package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"
)

// requestMetrics tell what came of whole requests, and what clients saw of them.
type requestMetrics struct {
	ended    *counters              // path, model, mode, outcome
	refused  *prometheus.CounterVec // reason
	inflight prometheus.Gauge
	tokenIDs *counters   // source
	first    *histograms // model, mode
	perToken *histograms // model, mode
	tokens   *counters   // kind
	lengths  *histograms // by
	events   prometheus.Counter
}

// tokenTimeBuckets are of a decode step: some milliseconds to what nobody likes to wait for.
var tokenTimeBuckets = []float64{
	.002, .004, .006, .008, .01, .015, .02, .03, .04, .05, .075, .1, .15, .25, .5, 1, 2.5,
}

func newRequestMetrics(f *metricFamilies) requestMetrics {
	m := requestMetrics{
		ended: f.counters("tandem_requests_total",
			"Requests that ended, by front-door path, model, mode and outcome.", "path", "model", "mode",
			"outcome"),
		refused: f.counter("tandem_refused_total", "Requests refused by the router itself, by reason.",
			"reason"),
		inflight: f.gauge("tandem_requests_in_flight", "Requests being served, waiting ones included."),
		tokenIDs: f.counters("tandem_token_ids_total", "Prompts by where their token ids came from.",
			"source"),
		first: f.histograms("tandem_time_to_first_token_seconds",
			"TTFT: seconds from a request in to its first content out, of streams that ended well.", secondsBuckets,
			"model", "mode"),
		perToken: f.histograms("tandem_time_per_output_token_seconds",
			"TPOT (mean ITL of a stream): seconds for each token after the first, of streams that ended well.",
			tokenTimeBuckets,
			"model", "mode"),
		tokens: f.counters("tandem_tokens_total",
			"Tokens of requests that ended well, by kind: prompt or output.", "kind"),
		lengths: f.histograms("tandem_output_prediction_ratio",
			"How many times as long as expected an answer was, by what was gone by: hint (the client said it) or "+
				"learned.",
			ratioBuckets, "by"),
		events: f.single("tandem_stream_events_total", "Server-sent events forwarded to clients."),
	}
	begin(m.refused, "draining", "no_replica", "queue_full", "queue_timeout", "too_late", "too_many",
		"unauthorised")
	return m
}

// length observes how long an answer was beside what was expected of it.
func (m *requestMetrics) length(r *Record, hinted bool) {
	if r.Decision == nil || r.Decision.Output < 1 || r.Output < 1 {
		return
	}
	by := byLearned
	if hinted {
		by = byHint
	}
	m.lengths.WithLabelValues(by).Observe(float64(r.Output) / float64(r.Decision.Output))
}

// By what lengths of answers are expected.
const byHint, byLearned = "hint", "learned"

// took observes what a client saw of a stream that ended well.
func (m *metrics) took(r *Record) {
	if !r.Streamed || r.Outcome != "ok" || r.Phases.First <= 0 {
		return
	}
	m.requests.first.WithLabelValues(r.Model, r.Mode).Observe(r.Phases.First / 1e3)
	if r.Output > 1 && r.Samples == 0 { // of several answers side by side nobody knows each one's
		m.requests.perToken.WithLabelValues(r.Model, r.Mode).Observe(
			(r.Phases.Total - r.Phases.First) / 1e3 / float64(r.Output-1),
		)
	}
}
