package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// legMetrics tell how long legs took at replicas, and how long was predicted.
type legMetrics struct {
	seconds *histograms // pool, replica
	ratio   *histograms // leg, replica
}

// ratioBuckets are close to each other around one.
var ratioBuckets = []float64{.05, .1, .2, .33, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100}

func newLegMetrics(f *metricFamilies) legMetrics {
	return legMetrics{
		seconds: f.histograms("tandem_leg_seconds",
			"Seconds of a leg at a replica: prefill to the whole answer, decode to its first content, or to the "+
				"whole answer where it is not streamed.",
			secondsBuckets, "pool", "replica"),
		ratio: f.histograms("tandem_leg_prediction_ratio",
			"How many times as long as predicted a leg took: prefill to its answer, decode and local to the first "+
				"content of a stream.",
			ratioBuckets, "leg", "replica"),
	}
}

// compare observes what a leg took beside what was predicted for it.
func (m *legMetrics) compare(leg string, at replica.ID, took, predicted time.Duration) {
	if predicted > 0 {
		m.ratio.WithLabelValues(leg, string(at)).Observe(took.Seconds() / predicted.Seconds())
	}
}
