package suite

import (
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// prefilling is the seconds that a replica of the profile takes to prefill what was not cached of a request.
func (a *Answer) prefilling(c *core.Cost) float64 {
	u, cached := float64(a.Prompt-a.Cached), float64(a.Cached)
	return c.T0 + c.A*u + c.B*(u*cached+u*u/2)
}

// decoding is the seconds by which the request made the decode steps of its replica longer, all together.
func (a *Answer) decoding(c *core.Cost) float64 {
	out := float64(a.Output)
	return out * (c.D1 + c.D2*(float64(a.Prompt)+out/2))
}

// imbalance is how much work the busiest replica of a pool has over the mean of the pool, at the pool where
// that is most. times says how often each session counts.
func imbalance(r *Trial, times []float64, replicas [2]int, c *core.Cost) float64 {
	pools := [2][]float64{make([]float64, replicas[0]), make([]float64, replicas[1])}
	for i := range r.Answers {
		a := &r.Answers[i]
		if a.Refused || a.Failed {
			continue
		}
		side := cluster.Prefill
		if a.local() {
			side = cluster.Decode
		}
		pools[side][a.Replica[side]] += a.prefilling(c) * times[a.Session]
		pools[cluster.Decode][a.Replica[cluster.Decode]] += a.decoding(c) * times[a.Session]
	}
	worst := 1.0
	for _, pool := range pools {
		most, sum := 0.0, 0.0
		for _, w := range pool {
			most, sum = max(most, w), sum+w
		}
		if sum > 0 {
			worst = max(worst, most*float64(len(pool))/sum)
		}
	}
	return worst
}
