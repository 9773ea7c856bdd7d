package observe

import "strconv"

// CacheMetrics compare the tokens cached on any replica, the tokens that plans used, and the engines' own
// numbers.
type CacheMetrics struct {
	Tokens     *Counters   // kind, mode, told
	Unmeasured *Counters   // reason
	MatchLoss  *Histograms // mode
	PredictErr *Histograms // pool, direction
}

// tokenBuckets start with no token and one block.
var tokenBuckets = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536}

func newCacheMetrics(f *Families) CacheMetrics {
	m := CacheMetrics{
		Tokens: f.Counters("tandem_cached_tokens_total",
			"Tokens of measured requests by kind: prompt, available on any replica, captured by the plan, "+
				"delivered by the engine. told: whether the engine reported a number.",
			"kind", "mode", "told"),
		Unmeasured: f.Counters("tandem_cached_unmeasured_total",
			"Requests that ended well and are not in tandem_cached_tokens_total, by reason. With not_told only "+
				"delivered is missing.",
			"reason"),
		MatchLoss: f.Histograms("tandem_match_loss_tokens",
			"Cached tokens that were available on a replica and not used by the plan.", tokenBuckets, "mode"),
		PredictErr: f.Histograms("tandem_prediction_error_tokens",
			"Captured less delivered tokens, by direction: over (the index promised too much), under, exact.",
			tokenBuckets, "pool", "direction"),
	}
	Begin(m.Unmeasured, "no_ids", "blind", "not_told")
	return m
}

// Observe adds to the counters of the three numbers. Ratios need equal sets of requests. So a request counts
// in none if one of the first two numbers is unknown, and the label told marks requests without a number from
// the engine.
func (m *CacheMetrics) Observe(r *Record, split bool) {
	switch {
	case r.Available < 0:
		m.Unmeasured.WithLabelValues("no_ids").Inc()
		return
	case r.Captured < 0:
		m.Unmeasured.WithLabelValues("blind").Inc()
		return
	case r.Delivered < 0:
		m.Unmeasured.WithLabelValues("not_told").Inc()
	}
	reported := strconv.FormatBool(r.Delivered >= 0)
	m.Tokens.WithLabelValues("prompt", r.Mode, reported).Add(float64(r.Prompt))
	m.Tokens.WithLabelValues("available", r.Mode, reported).Add(float64(r.Available))
	m.Tokens.WithLabelValues("captured", r.Mode, reported).Add(float64(r.Captured))
	m.MatchLoss.WithLabelValues(r.Mode).Observe(float64(max(0, r.Available-r.Captured)))
	if r.Delivered >= 0 {
		m.Tokens.WithLabelValues("delivered", r.Mode, reported).Add(float64(r.Delivered))
		m.predicted(r.Captured-r.Delivered, split)
	}
}

// predicted records the error of the index in tokens: positive if the index predicted too many, negative if
// too few.
func (m *CacheMetrics) predicted(over int, split bool) {
	pool, direction := "decode", "exact"
	if split {
		pool = "prefill"
	}
	switch {
	case over > 0:
		direction = "over"
	case over < 0:
		direction, over = "under", -over
	}
	m.PredictErr.WithLabelValues(pool, direction).Observe(float64(over))
}
