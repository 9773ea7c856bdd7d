package main

// row is a part of the dashboard.
type row struct {
	title  string
	panels []panel
}

// panel is a plot or a stat. what explains it.
type panel struct {
	title, what, unit string
	queries           []query
}

type query struct{ expr, legend string }

// clients are outcomes that clients cause, as in deploy/prometheus/rules.yml.
const clients = "ok|client_gone|status_400|status_404|status_413|status_422|bad_request|bad_id|body_.*|" +
	"too_large|unauthorised|unknown_.*"

// thresholds are the values at which the colour of a stat changes: from green to red, or from red to green.
type thresholds struct {
	first, second float64
	moreIsBetter  bool
}

// steps are the panels that are stats.
var steps = map[string]thresholds{
	"TTFT p90": {2, 5, false}, "ITL p99": {0.05, 0.1, false}, "Errors": {0.001, 0.01, false},
	"Usable replicas": {0.5, 1, true},
}

// rows begin with figures that clients see and go on to their causes.
var rows = []row{
	{"At a glance", []panel{
		{"TTFT p90", "SLO: time to the first token of streams that ended well. Set the thresholds to yours.", "s", []query{{
			`histogram_quantile(0.9, sum by (le) (rate(tandem_time_to_first_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "TTFT p90",
		}}},
		{"ITL p99", "SLO: inter-token latency, the mean of each stream (TPOT). Set the thresholds to yours.", "s", []query{{
			`histogram_quantile(0.99, sum by (le) (rate(tandem_time_per_output_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "ITL p99",
		}}},
		{"Errors", "Share of requests that fail or are refused, and no client is to blame.", "percentunit", []query{{
			`(sum(rate(tandem_requests_total{job=~"$job",model=~"$model",outcome!~"` + clients + `"}[$__rate_interval])) or vector(0)) / sum(rate(tandem_requests_total{job=~"$job",model=~"$model"}[$__rate_interval]))`, "errors",
		}}},
		{"Usable replicas", "Share of the replicas that can serve. States below has those that are not.", "percentunit", []query{{
			`avg(min by (pool, replica) (tandem_replica_up{job=~"$job",replica=~"$replica"}))`, "usable",
		}}},
	}},
	{"What clients see", []panel{
		{"Requests a second", "By what became of them.", "reqps", []query{{`sum by (outcome) (rate(tandem_requests_total{job=~"$job",model=~"$model"}[$__rate_interval]))`, "{{outcome}}"}}},
		{"In flight and waiting", "Waiting: no decode replica has room.", "short", []query{
			{`sum(tandem_requests_in_flight{job=~"$job"})`, "in flight"}, {`sum(tandem_queue_waiting{job=~"$job"})`, "waiting for room"},
		}},
		{"TTFT", "Time to first token, of streams that ended well, by model.", "s", []query{
			{`histogram_quantile(0.5, sum by (le, model) (rate(tandem_time_to_first_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "{{model}} p50"},
			{`histogram_quantile(0.99, sum by (le, model) (rate(tandem_time_to_first_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "{{model}} p99"},
		}},
		{"TPOT (mean ITL)", "Time for each token after the first; the mean of each stream.", "s", []query{
			{`histogram_quantile(0.5, sum by (le, model) (rate(tandem_time_per_output_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "{{model}} p50"},
			{`histogram_quantile(0.99, sum by (le, model) (rate(tandem_time_per_output_token_seconds_bucket{job=~"$job",model=~"$model"}[$__rate_interval])))`, "{{model}} p99"},
		}},
		{"Tokens a second", "Of requests that ended well.", "short", []query{{`sum by (kind) (rate(tandem_tokens_total{job=~"$job"}[$__rate_interval]))`, "{{kind}}"}}},
		{"Where the time goes", "Mean of each phase.", "s", []query{{
			`sum by (phase) (rate(tandem_phase_seconds_sum{job=~"$job"}[$__rate_interval])) / sum by (phase) (rate(tandem_phase_seconds_count{job=~"$job"}[$__rate_interval]))`, "{{phase}}",
		}}},
	}},
	{"Decisions and caches", []panel{
		{"Plans a second", "split: two replicas; local: a decode replica alone.", "reqps", []query{{`sum by (mode) (rate(tandem_decisions_total{job=~"$job"}[$__rate_interval]))`, "{{mode}}"}}},
		{"Why", "The term by which the chosen plan was ahead.", "reqps", []query{{`sum by (reason) (rate(tandem_decisions_total{job=~"$job"}[$__rate_interval]))`, "{{reason}}"}}},
		{"Caches: workload, router, engine", "Available: of prompts, cached anywhere. Captured: of that, where plans went. Delivered: of that, still there.", "percentunit", []query{
			{`sum(rate(tandem_cached_tokens_total{job=~"$job",kind="available"}[$__rate_interval])) / sum(rate(tandem_cached_tokens_total{job=~"$job",kind="prompt"}[$__rate_interval]))`, "available"},
			{`sum(rate(tandem_cached_tokens_total{job=~"$job",kind="captured"}[$__rate_interval])) / sum(rate(tandem_cached_tokens_total{job=~"$job",kind="available"}[$__rate_interval]))`, "captured"},
			{`sum(rate(tandem_cached_tokens_total{job=~"$job",kind="delivered"}[$__rate_interval])) / sum(rate(tandem_cached_tokens_total{job=~"$job",kind="captured",told="true"}[$__rate_interval]))`, "delivered"},
		}},
		{"Real beside predicted", "How many times as long as predicted a leg took, median. Far from 1: this replica is faster or slower than learned.", "short", []query{{
			`histogram_quantile(0.5, sum by (le, replica, leg) (rate(tandem_leg_prediction_ratio_bucket{job=~"$job",replica=~"$replica"}[$__rate_interval])))`, "{{replica}} {{leg}}",
		}}},
		{"Handoff", "Last byte of the prefill answer to the decode request being written.", "s", []query{
			{`histogram_quantile(0.5, sum by (le) (rate(tandem_handoff_gap_seconds_bucket{job=~"$job"}[$__rate_interval])))`, "p50"},
			{`histogram_quantile(0.99, sum by (le) (rate(tandem_handoff_gap_seconds_bucket{job=~"$job"}[$__rate_interval])))`, "p99"},
		}},
		{"Tokens handed over", "Planned and moved: a gap between them is work done twice.", "short", []query{{`sum by (kind) (rate(tandem_handoff_tokens_total{job=~"$job"}[$__rate_interval]))`, "{{kind}}"}}},
	}},
	{"Replicas", []panel{
		{"Usable", "1 is usable.", "short", []query{{`min by (pool, replica) (tandem_replica_up{job=~"$job",replica=~"$replica"})`, "{{pool}} {{replica}}"}}},
		{"States", "Slow, full by sequences, ejected, distrusted, unpaired, other adapters: " +
			"the cause stands on the live page. Empty is good.", "short", []query{
			{`sum by (replica, state) (tandem_replica_state{job=~"$job",replica=~"$replica"}) > 0 or vector(0)`, "{{replica}} {{state}}"},
		}},
		{"KV in use", "As last reported.", "percentunit", []query{{`max by (pool, replica) (tandem_replica_kv_usage_ratio{job=~"$job",replica=~"$replica"})`, "{{pool}} {{replica}}"}}},
		{"Running and queued there", "As last reported.", "short", []query{
			{`max by (replica) (tandem_replica_running{job=~"$job",replica=~"$replica"})`, "{{replica}} running"}, {`max by (replica) (tandem_replica_waiting{job=~"$job",replica=~"$replica"})`, "{{replica}} queued"},
		}},
		{"Free decode blocks", "That may be promised.", "short", []query{{`min by (replica) (tandem_decode_free_blocks{job=~"$job",replica=~"$replica"})`, "{{replica}}"}}},
		{"Prompt tokens to compute", "Sent by us and not done.", "short", []query{{`sum by (replica) (tandem_prefill_queued_tokens{job=~"$job",replica=~"$replica"})`, "{{replica}}"}}},
		{"A prompt token, learned", "Of prefill replicas.", "s", []query{{`max by (replica) (tandem_replica_prefill_token_seconds{job=~"$job",replica=~"$replica"})`, "{{replica}}"}}},
		{"A decode step, learned", "With an empty batch.", "s", []query{{`max by (replica) (tandem_replica_decode_step_seconds{job=~"$job",replica=~"$replica"})`, "{{replica}}"}}},
	}},
	{"Trouble", []panel{
		{"Failed attempts a second", "Held against a leg of a replica, or a pair. Most of them are tried again.", "reqps", []query{
			{`sum by (replica, leg, kind) (rate(tandem_attempt_failures_total{job=~"$job",replica=~"$replica"}[$__rate_interval])) or vector(0)`, "{{replica}} {{leg}}: {{kind}}"},
		}},
		{"Retries and their budget", "Where used reaches the budget, failures reach clients.", "short", []query{
			{`sum(tandem_retry_budget_used{job=~"$job"})`, "used"}, {`sum(tandem_retry_budget{job=~"$job"})`, "budget"},
		}},
		{"Ejections and pairs that are out", "Of the last ten minutes; pairs now.", "short", []query{
			{`sum by (replica, leg) (increase(tandem_ejections_total{job=~"$job",replica=~"$replica"}[10m]))`, "{{replica}} {{leg}}"}, {`sum(tandem_pair_ejected{job=~"$job"}) or vector(0)`, "pairs"},
		}},
		{
			"Replicas with other adapters",
			"They have one from another path than the other pool: its requests are not handed over.", "short",
			[]query{{
				`sum by (pool) (tandem_replica_state{job=~"$job",replica=~"$replica",state="adapter_differs"})`, "{{pool}}",
			}},
		},
		{"Refused by the router", "By reason.", "reqps", []query{{`sum by (reason) (rate(tandem_refused_total{job=~"$job"}[$__rate_interval]))`, "{{reason}}"}}},
		{"Age of reports", "The oldest.", "s", []query{{`max by (pool) (tandem_replica_report_age_seconds{job=~"$job",replica=~"$replica"})`, "{{pool}}"}}},
		{"Index lag", "From the engine's time stamp to applied, p99.", "s", []query{{`histogram_quantile(0.99, sum by (le, pool) (rate(tandem_index_lag_seconds_bucket{job=~"$job",from="event"}[$__rate_interval])))`, "{{pool}}"}}},
	}},
	{"The router itself", []panel{
		{"CPU", "Cores.", "short", []query{{`sum by (instance) (rate(process_cpu_seconds_total{job=~"$job"}[$__rate_interval]))`, "{{instance}}"}}},
		{"Memory", "Resident, and of the block indexes.", "bytes", []query{
			{`sum by (instance) (process_resident_memory_bytes{job=~"$job"})`, "{{instance}}"}, {`sum by (pool) (tandem_index_bytes{job=~"$job"})`, "index of {{pool}}"},
		}},
		{"Configuration", "The revision in force: a change of it beside a change of behaviour.", "short", []query{{`sum by (revision) (tandem_config_info{job=~"$job"})`, "{{revision}}"}}},
		{"Stood still", "Seconds a second in which the process did not run.", "s", []query{{`sum by (instance) (rate(tandem_stalled_seconds_total{job=~"$job"}[$__rate_interval]))`, "{{instance}}"}}},
	}},
}
