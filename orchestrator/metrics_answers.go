package orchestrator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/answercache/valkey"
)

// answerMetrics count what the answer cache does. All series exist from the beginning, at 0.
type answerMetrics struct {
	requests *prometheus.CounterVec // result
	bypassed *prometheus.CounterVec // reason
	unkept   *prometheus.CounterVec // reason
	looks    *prometheus.CounterVec // result
	writes   *prometheus.CounterVec // result
}

func newAnswerMetrics(f *metricFamilies) answerMetrics {
	m := answerMetrics{
		requests: f.counter("tandem_answer_cache_requests_total",
			"Requests to the answer cache by what came of them: hit, joined (another request was getting the "+
				"answer), miss, bypass.", "result"),
		bypassed: f.counter("tandem_answer_cache_bypassed_total",
			"Requests that were not for the answer cache, by reason.", "reason"),
		unkept: f.counter("tandem_answer_cache_unkept_total",
			"Good answers that the answer cache did not keep, by reason.", "reason"),
		looks: f.counter("tandem_answer_cache_shared_looks_total",
			"Looks for an answer in the store that routers share, by result.", "result"),
		writes: f.counter("tandem_answer_cache_shared_writes_total",
			"Answers for the store that routers share, by result.", "result"),
	}
	begin(m.looks, valkey.Hit, valkey.Miss, valkey.Late, valkey.Failed, valkey.Down, valkey.Foreign)
	begin(m.writes, valkey.Written, valkey.Unwritten, valkey.Dropped)
	begin(m.requests, cacheHit, cacheJoined, cacheMiss, cacheBypass)
	begin(m.bypassed, bypassReasons()...)
	begin(m.unkept, tooLong, notFinished, wasResumed, notTrusted, unknownFrom)
	return m
}

var (
	descAnswers = prometheus.NewDesc("tandem_answer_cache_entries", "Answers that are kept in memory.", nil, nil)
	descHeld    = prometheus.NewDesc("tandem_answer_cache_bytes", "Memory of the answers that are kept.",
		nil, nil)
	descEvicted = prometheus.NewDesc("tandem_answer_cache_evictions_total",
		"Answers that had to go from memory for others.", nil, nil)
	descShared = prometheus.NewDesc("tandem_answer_cache_shared_up",
		"Whether the store that routers share works as far as is known: 1 or 0; absent where there is none.", nil,
		nil)
)

// answers tells what the answer cache holds: nothing where there is none.
func (c *collector) answers(e emit) {
	snap := c.o.snap.Load()
	if snap == nil || snap.answers == nil {
		return
	}
	s := snap.answers.memory.Stats()
	e.gauge(descAnswers, float64(s.Answers))
	e.gauge(descHeld, float64(s.Bytes))
	e.counter(descEvicted, float64(s.Evictions))
	if store := snap.answers.shared; store != nil {
		e.gauge(descShared, oneIf(store.Up()))
	}
}
