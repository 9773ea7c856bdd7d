package observe

import "github.com/tandem-router/tandem/internal/answercache"

var (
	descAnswers = desc("tandem_answer_cache_entries", "Answers that are kept in memory.")
	descHeld    = desc("tandem_answer_cache_bytes", "Memory of the answers that are kept.")
	descEvicted = desc("tandem_answer_cache_evictions_total", "Answers that had to go from memory for others.")
	descShared  = desc("tandem_answer_cache_shared_up",
		"1 if the shared store works, as far as known, else 0; absent without a store.")
)

// AnswerCache describes the content of the answer cache.
type AnswerCache struct {
	answercache.MemoryStats
	Shared   bool // with other routers
	SharedUp bool // as far as is known
}

// answers sends the content of the answer cache; nothing without one.
func (c *collector) answers(e emit) {
	s := c.of.Answers()
	if s == nil {
		return
	}
	e.gauge(descAnswers, float64(s.Answers))
	e.gauge(descHeld, float64(s.Bytes))
	e.counter(descEvicted, float64(s.Evictions))
	if s.Shared {
		e.gauge(descShared, oneIf(s.SharedUp))
	}
}
