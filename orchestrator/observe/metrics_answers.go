package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/answercache/valkey"
)

// AnswerMetrics count what the answer cache does. All series exist from the beginning, at 0.
type AnswerMetrics struct {
	Requests *prometheus.CounterVec // result
	Bypassed *prometheus.CounterVec // reason
	Unkept   *prometheus.CounterVec // reason
	Looks    *prometheus.CounterVec // result
	Writes   *prometheus.CounterVec // result
}

func newAnswerMetrics(f *Families) AnswerMetrics {
	m := AnswerMetrics{
		Requests: f.Counter("tandem_answer_cache_requests_total",
			"Requests to the answer cache by result: hit, joined (another request was computing the "+
				"answer), miss, bypass.", "result"),
		Bypassed: f.Counter("tandem_answer_cache_bypassed_total",
			"Requests that were not for the answer cache, by reason.", "reason"),
		Unkept: f.Counter("tandem_answer_cache_unkept_total",
			"Good answers that the answer cache did not keep, by reason.", "reason"),
		Looks: f.Counter("tandem_answer_cache_shared_looks_total",
			"Lookups in the shared store, by result.", "result"),
		Writes: f.Counter("tandem_answer_cache_shared_writes_total",
			"Writes to the shared store, by result.", "result"),
	}
	Begin(m.Looks, valkey.Hit, valkey.Miss, valkey.Late, valkey.Failed, valkey.Down, valkey.Foreign)
	Begin(m.Writes, valkey.Written, valkey.Unwritten, valkey.Dropped)
	return m
}
