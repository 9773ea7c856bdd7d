package observe

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// LegMetrics describe the durations of legs, measured and predicted.
type LegMetrics struct {
	Seconds *Histograms // pool, replica
	Ratio   *Histograms // leg, replica
}

// ratioBuckets are fine around one.
var ratioBuckets = []float64{.05, .1, .2, .33, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100}

func newLegMetrics(f *Families) LegMetrics {
	return LegMetrics{
		Seconds: f.Histograms("tandem_leg_seconds",
			"Seconds of a leg at a replica: prefill to the whole answer; decode to the first content, or to the "+
				"whole answer if it is not streamed.",
			secondsBuckets, "pool", "replica"),
		Ratio: f.Histograms("tandem_leg_prediction_ratio",
			"Real over predicted duration of a leg: prefill to its answer, decode and local to the first "+
				"content of a stream.",
			ratioBuckets, "leg", "replica"),
	}
}

// Compare records the real and the predicted time of a leg.
func (m *LegMetrics) Compare(leg string, at replica.ID, took, predicted time.Duration) {
	if predicted > 0 {
		m.Ratio.WithLabelValues(leg, string(at)).Observe(took.Seconds() / predicted.Seconds())
	}
}
