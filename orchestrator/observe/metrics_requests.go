package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/keys"
)

// RequestMetrics describe the outcome of whole requests, as clients saw them.
//
// Long: a family of metrics a field.
type RequestMetrics struct {
	keyTokens *Counters              // key, model, kind
	Ended     *Counters              // path, model, mode, outcome
	ByKey     *Counters              // key, outcome
	Aliased   *Counters              // alias, model, outcome
	Used      *keys.Usage            // since the last line of usage.file
	Recent    *keys.Recent           // for page and top
	Refused   *prometheus.CounterVec // reason
	InFlight  prometheus.Gauge
	TokenIDs  *Counters   // source
	First     *Histograms // model, mode
	PerToken  *Histograms // model, mode
	Tokens    *Counters   // kind
	Lengths   *Histograms // by
	Events    prometheus.Counter
}

// tokenTimeBuckets are for decode steps: from some milliseconds to a time that no reader accepts.
var tokenTimeBuckets = []float64{
	.002, .004, .006, .008, .01, .015, .02, .03, .04, .05, .075, .1, .15, .25, .5, 1, 2.5,
}

func newRequestMetrics(f *Families) RequestMetrics {
	m := RequestMetrics{
		Used: new(keys.Usage), Recent: new(keys.Recent),
		Ended: f.Counters("tandem_requests_total",
			"Requests that ended, by front-door path, model, mode and outcome.", "path", "model", "mode",
			"outcome"),
		ByKey: f.Counters("tandem_key_requests_total",
			"Requests that ended, by client key and outcome. A key that is removed loses its series.", "key",
			"outcome"),
		Aliased: f.Counters("tandem_alias_requests_total",
			"Requests for an alias that ended, by alias, by the model that served (empty for none) and by outcome.",
			"alias", "model", "outcome"),
		keyTokens: f.Counters("tandem_key_tokens_total",
			"Tokens that engines computed, by client key, model and kind: prompt, cached (a part of prompt) or "+
				"generated.", "key", "model", "kind"),
		Refused: f.Counter("tandem_refused_total", "Requests refused by the router itself, by reason.",
			"reason"),
		InFlight: f.Gauge("tandem_requests_in_flight", "Requests being served, waiting ones included."),
		TokenIDs: f.Counters("tandem_token_ids_total", "Prompts by the source of their token ids.",
			"source"),
		First: f.Histograms("tandem_time_to_first_token_seconds",
			"TTFT: seconds from request in to first content out, of streams that ended well.", secondsBuckets,
			"model", "mode"),
		PerToken: f.Histograms("tandem_time_per_output_token_seconds",
			"TPOT (mean ITL of a stream): seconds for each token after the first, of streams that ended well.",
			tokenTimeBuckets,
			"model", "mode"),
		Tokens: f.Counters("tandem_tokens_total",
			"Tokens of requests that ended well, by kind: prompt or output.", "kind"),
		Lengths: f.Histograms("tandem_output_prediction_ratio",
			"Real over expected length of an answer, by the source of the expectation: the client's hint, or "+
				"learned.",
			ratioBuckets, "by"),
		Events: f.Single("tandem_stream_events_total", "Server-sent events forwarded to clients."),
	}
	Begin(m.Refused, "draining", "no_replica", "over_limit", "queue_full", "queue_timeout", "too_late",
		"too_many",
		"unauthorised")
	return m
}

// Charge counts what engines have computed for a client key.
func (m *RequestMetrics) Charge(u keys.Used) {
	m.Used.Add(u)
	m.Recent.Use(u, time.Now())
	m.keyTokens.WithLabelValues(u.Key, u.Model, "prompt").Add(float64(u.Prompt))
	m.keyTokens.WithLabelValues(u.Key, u.Model, "cached").Add(float64(u.Cached))
	m.keyTokens.WithLabelValues(u.Key, u.Model, "generated").Add(float64(u.Generated))
}

// Length records the length of an answer and the expected length.
func (m *RequestMetrics) Length(r *Record, hinted bool) {
	if r.Decision == nil || r.Decision.Output < 1 || r.Output < 1 {
		return
	}
	by := ByLearned
	if hinted {
		by = ByHint
	}
	m.Lengths.WithLabelValues(by).Observe(float64(r.Output) / float64(r.Decision.Output))
}

// ByHint and ByLearned are the values of the label that names the source of an expected length.
const (
	ByHint    = "hint"
	ByLearned = "learned"
)

// Took records the times of a stream that ended well, as its client saw them.
func (m *Metrics) Took(r *Record) {
	if !r.Streamed || r.Outcome != "ok" || r.Phases.First <= 0 {
		return
	}
	m.Requests.First.WithLabelValues(r.Model, r.Mode).Observe(r.Phases.First / 1e3)
	if r.Class != "" {
		m.Classes.First.WithLabelValues(r.Class).Observe(r.Phases.First / 1e3)
	}
	if r.Output > 1 && r.Samples == 0 { // the lengths of several parallel answers are unknown
		m.Requests.PerToken.WithLabelValues(r.Model, r.Mode).Observe(
			(r.Phases.Total - r.Phases.First) / 1e3 / float64(r.Output-1),
		)
	}
}
