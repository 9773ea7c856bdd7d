package orchestrator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tandem/internal/replica"
	"tandem/orchestrator/outlier"
)

// metrics are the counters and histograms that requests move. What can be read from the pools at scrape time
// is in collect.go. docs/metrics.md explains every family; a test holds the two together.
//
// Safe for concurrent use. Children of the hot path are resolved once, in [newMetrics].
type metrics struct {
	requests      *counters                // path, model, mode, outcome
	first         *histograms              // model, mode
	perToken      *histograms              // model, mode
	failures      *prometheus.CounterVec   // pool, replica, leg, kind
	decisions     *counters                // mode, reason
	phase         *prometheus.HistogramVec // phase
	handoffGap    prometheus.Histogram
	leg           *histograms // pool, replica
	legRatio      *histograms // leg, replica
	tokens        *counters   // kind
	cached        *counters   // kind, mode, told
	unmeasured    *counters   // reason
	matchLoss     *histograms // mode
	predictErr    *histograms // pool, direction
	partial       *counters   // reason
	shadow        *counters   // verdict
	regret        prometheus.Histogram
	tokenSource   *counters              // source
	retries       *prometheus.CounterVec // phase
	continued     *prometheus.CounterVec // outcome
	refused       *prometheus.CounterVec // reason
	params        *prometheus.CounterVec // reason
	giveBack      *prometheus.CounterVec // result
	late          *prometheus.CounterVec // verdict
	ejected       *prometheus.CounterVec // pool, replica, leg
	pairEjected   *prometheus.CounterVec // prefill, decode
	trials        *prometheus.CounterVec // result
	forced        prometheus.Counter
	handoffTokens *counters // prefill, decode, kind
	unmoved       *counters // prefill, decode
	rebinds       prometheus.Counter
	inflight      prometheus.Gauge
	events        prometheus.Counter // SSE events forwarded
	reloads       *prometheus.CounterVec
	reloadOK      prometheus.Gauge
	reloadTime    prometheus.Gauge
	revision      *prometheus.GaugeVec   // revision
	unwritten     *prometheus.CounterVec // reason

	phases   [phaseCount]prometheus.Observer
	families []replicaFamily
}

// phase is a part of a request's life that is timed.
type phase uint8

const (
	phaseTokenize phase = iota
	phaseQueue
	phasePlan
	phasePrefill
	phaseHandoff
	phaseFirst
	phaseTotal
	phaseCount
)

var phaseNames = [phaseCount]string{"tokenize", "queue", "plan", "prefill", "handoff", "first", "total"}

// tokenBuckets begin with none at all and with a block.
var tokenBuckets = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536}

// tokenTimeBuckets are of a decode step: some milliseconds to what nobody likes to wait for.
var tokenTimeBuckets = []float64{
	.002, .004, .006, .008, .01, .015, .02, .03, .04, .05, .075, .1, .15, .25, .5, 1, 2.5,
}

// ratioBuckets are close to each other around one.
var ratioBuckets = []float64{.05, .1, .2, .33, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100}

func newMetrics(reg prometheus.Registerer) *metrics {
	var named metrics
	seconds := []float64{
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		named.ofReplicas(c, labels)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		named.ofReplicas(h, labels)
		return h
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	m := &metrics{
		requests: newSeries(counter("tandem_requests_total",
			"Requests that ended, by front-door path, model, mode and outcome.", "path", "model", "mode",
			"outcome").WithLabelValues),
		first: newSeries(histogram("tandem_time_to_first_token_seconds",
			"Seconds from a request in to the first content out, of streams that ended well.", seconds, "model",
			"mode").WithLabelValues),
		perToken: newSeries(histogram("tandem_time_per_output_token_seconds",
			"Seconds a token behind the first, a mean of each stream that ended well.", tokenTimeBuckets, "model",
			"mode").WithLabelValues),
		failures: counter("tandem_attempt_failures_total",
			"Failed attempts that are held against a replica, by its leg and the kind of failure.", "pool", "replica",
			"leg", "kind"),
		decisions: newSeries(counter("tandem_decisions_total",
			"Plans that were booked, by mode and the term that decided.", "mode", "reason").WithLabelValues),
		phase: histogram("tandem_phase_seconds", "Seconds a request spent in a phase.", seconds, "phase"),
		handoffGap: histogram("tandem_handoff_gap_seconds",
			"Seconds from the last byte of the prefill answer to the decode request being written.",
			handoffBuckets()).WithLabelValues().(prometheus.Histogram),
		leg: newSeries(
			histogram("tandem_leg_seconds",
				"Seconds of a leg at a replica: prefill to the whole answer, decode to its first content, or to the "+
					"whole answer where it is not streamed.",
				seconds, "pool", "replica").WithLabelValues,
		),
		legRatio: newSeries(
			histogram("tandem_leg_prediction_ratio",
				"How many times as long as predicted a leg took: prefill to its answer, decode and local to the first "+
					"content of a stream.",
				ratioBuckets, "leg", "replica").WithLabelValues,
		),
		tokens: newSeries(counter("tandem_tokens_total",
			"Tokens of requests that ended well, by kind: prompt or output.", "kind").WithLabelValues),
		cached: newSeries(
			counter("tandem_cached_tokens_total",
				"Tokens of measured requests by kind: prompt, available on any replica, captured by the plan, "+
					"delivered by the engine; told: whether the engine gave a number.",
				"kind", "mode", "told").WithLabelValues,
		),
		unmeasured: newSeries(
			counter("tandem_cached_unmeasured_total",
				"Requests that ended well and are not in tandem_cached_tokens_total, by reason; those not_told are "+
					"missing in its delivered alone.",
				"reason").WithLabelValues,
		),
		matchLoss: newSeries(histogram("tandem_match_loss_tokens",
			"Cached tokens that were available somewhere and not captured by the plan.", tokenBuckets,
			"mode").WithLabelValues),
		predictErr: newSeries(histogram("tandem_prediction_error_tokens",
			"Difference of captured and delivered tokens: over, where the index promised too much, under, exact.",
			tokenBuckets, "pool", "direction").WithLabelValues),
		partial: newSeries(counter("tandem_decisions_partial_total", "Plans booked while the index of a "+
			"possible replica was unknown (blind) or cut for its byte budget (truncated).", "reason").WithLabelValues),
		shadow: newSeries(counter("tandem_shadow_decisions_total",
			"Plans by whether what was learned, which does not decide, would have chosen the same or one as good.",
			"verdict").WithLabelValues),
		regret: histogram("tandem_shadow_regret_seconds",
			"By how much the plan that what was learned would have chosen is better, by what was learned.",
			seconds).WithLabelValues().(prometheus.Histogram),
		tokenSource: newSeries(
			counter("tandem_token_ids_total", "Prompts by where their token ids came from.", "source").WithLabelValues,
		),
		retries: counter("tandem_retries_total",
			"Second attempts before the first byte, by the phase that failed.", "phase"),
		continued: counter("tandem_continued_total",
			"Streams that broke off behind their first content and may go on elsewhere, by what came of it.",
			"outcome"),
		refused: counter("tandem_refused_total", "Requests refused by the router itself, by reason.",
			"reason"),
		params: counter("tandem_transfer_params_refused_total",
			"Prefill answers whose transfer parameters were not used, by reason.", "reason"),
		giveBack: counter("tandem_give_back_total",
			"Leases of prefill blocks that were given back unused, by result.", "result"),
		late: counter("tandem_late_answers_total", "Split answers that began after the lease could have "+
			"ended, by verdict on whether the blocks were read in time.", "verdict"),
		ejected: counter("tandem_ejections_total",
			"Times that a replica was kept out since it failed too often, by the leg that failed.", "pool", "replica",
			"leg"),
		pairEjected: counter("tandem_pair_ejections_total",
			"Times that a pair was kept out since KV blocks did not come over between its replicas.", "prefill",
			"decode"),
		trials: counter("tandem_trials_total",
			"Requests of the router's own to replicas and pairs that are ejected or suspected, by result.", "result"),
		forced: counter(
			"tandem_ejection_overridden_total",
			"Plans for which ejected replicas or pairs were used as they are, since too few others were left.",
		).WithLabelValues(),
		handoffTokens: newSeries(
			counter("tandem_handoff_tokens_total",
				"Prompt tokens of split requests that ended well, by pair: planned to be transferred; moved, by what "+
					"the decode engine says it had cached beyond what it held; and unsure, the same where it is not known "+
					"what it held.",
				"prefill", "decode", "kind").WithLabelValues,
		),
		unmoved: newSeries(counter("tandem_handoff_unmoved_total",
			"Split requests that ended well, and of whose prompt nothing was transferred.", "prefill",
			"decode").WithLabelValues),
		rebinds: counter("tandem_decode_rebinds_total",
			"Requests whose decode replica changed when the prefill answer came.").WithLabelValues(),
		inflight: gauge("tandem_requests_in_flight", "Requests being served, waiting ones included."),
		events: counter("tandem_stream_events_total",
			"Server-sent events forwarded to clients.").WithLabelValues(),
		reloads: counter("tandem_config_reloads_total", "Attempts to apply a configuration, by result.",
			"result"),
		reloadOK: gauge("tandem_config_last_reload_successful",
			"Whether the newest configuration file was accepted: 1 or 0."),
		reloadTime: gauge("tandem_config_last_success_timestamp_seconds",
			"When a configuration was last applied, unix seconds."),
		unwritten: counter("tandem_decisions_unwritten_total",
			"Records that are missing in decisions.file: the disk was slow, or a write failed.", "reason"),
	}
	m.revision = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tandem_config_info",
		Help: "1 for the revision of the configuration in force, as records of decisions have it.",
	}, []string{"revision"})
	reg.MustRegister(m.revision)
	m.families = named.families
	m.begin()
	for i, name := range phaseNames {
		m.phases[i] = m.phase.WithLabelValues(name)
	}
	return m
}

// begin makes the series whose labels are known before anything happens, at 0: an alert on an increase cannot
// fire on a series that is born at 1.
func (m *metrics) begin() {
	for vec, values := range map[interface {
		WithLabelValues(values ...string) prometheus.Counter
	}][]string{
		m.unwritten: {"slow", "failed"},
		m.retries:   {"tokenize", "prefill", "handoff", "decode", "stream"},
		m.refused: {
			"draining", "no_replica", "queue_full", "queue_timeout", "too_late", "too_many", "unauthorised",
		},
		m.params:     {"bad_params", "expired", "foreign", "taken"},
		m.giveBack:   {"freed", "too_many"},
		m.continued:  {wentOn, wasComplete, notPossible, tooOften, noBudget, diverged, nobody, clientLeft},
		m.partial:    {"blind", "truncated"},
		m.reloads:    {"applied", "rejected"},
		m.unmeasured: {"no_ids", "blind", "not_told"},
	} {
		for _, v := range values {
			vec.WithLabelValues(v)
		}
	}
}

// beginReplica does so for a replica that is new, or has another name.
func (m *metrics) beginReplica(r *replica.Replica) {
	legs := []outlier.Leg{outlier.Prefill}
	if r.Role == replica.Decode {
		legs = []outlier.Leg{outlier.Decode, outlier.Whole}
	}
	for _, leg := range legs {
		m.ejected.WithLabelValues(r.Role.String(), string(r.ID), leg.String())
	}
}

// handoffBuckets are fine where the handoff should be: tens to hundreds of microseconds.
func handoffBuckets() []float64 {
	return append(prometheus.ExponentialBuckets(10e-6, 1.25, 24), .003, .01, .03, .1, .3, 1, 3, 15)
}

func (m *metrics) observe(p phase, d time.Duration) { m.phases[p].Observe(d.Seconds()) }

// compare observes what a leg took beside what was predicted for it.
func (m *metrics) compare(leg string, at replica.ID, took, predicted time.Duration) {
	if predicted > 0 {
		m.legRatio.WithLabelValues(leg, string(at)).Observe(took.Seconds() / predicted.Seconds())
	}
}

// took observes what a client saw of a stream that ended well.
func (m *metrics) took(r *Record) {
	if !r.Streamed || r.Outcome != "ok" || r.Phases.First <= 0 {
		return
	}
	m.first.WithLabelValues(r.Model, r.Mode).Observe(r.Phases.First / 1e3)
	if r.Output > 1 && r.Samples == 0 { // of several answers side by side nobody knows each one's
		m.perToken.WithLabelValues(r.Model, r.Mode).Observe(
			(r.Phases.Total - r.Phases.First) / 1e3 / float64(r.Output-1),
		)
	}
}
