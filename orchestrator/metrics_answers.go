package orchestrator

import "github.com/prometheus/client_golang/prometheus"

// answerMetrics count what the answer cache does. All series exist from the beginning, at 0.
type answerMetrics struct {
	requests *prometheus.CounterVec // result
	bypassed *prometheus.CounterVec // reason
	unkept   *prometheus.CounterVec // reason
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
	}
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
}
