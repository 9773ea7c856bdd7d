package suite

import (
	"tandem/internal/enginesim"
	"tandem/internal/replay/cluster"
)

// work is the seconds that a replica of the profile takes to prefill what was not cached of a request.
func (a *Answer) work(c *enginesim.Cost) float64 {
	u, cached := float64(a.Prompt-a.Cached), float64(a.Cached)
	return c.T0 + c.A*u + c.B*(u*cached+u*u/2)
}

// usedShare is the part of all prefill work from which on a pool counts as used for it.
const usedShare = 0.2

// imbalance is how much prefill work the busiest replica of a pool has over the mean of the pool, at the pool where that is most; a pool that does next to
// none of it is left out. times says how often each session counts.
func imbalance(r *Trial, times []float64, replicas [2]int, c *enginesim.Cost) float64 {
	pools := [2][]float64{make([]float64, replicas[0]), make([]float64, replicas[1])}
	sums, all := [2]float64{}, 0.0
	for i := range r.Answers {
		a := &r.Answers[i]
		if a.Refused {
			continue
		}
		side := cluster.Prefill
		if a.local() {
			side = cluster.Decode
		}
		w := a.work(c) * times[a.Session]
		pools[side][a.Replica[side]] += w
		sums[side] += w
		all += w
	}
	worst := 1.0
	for side, pool := range pools {
		if sums[side] < usedShare*all {
			continue
		}
		for _, w := range pool {
			worst = max(worst, w*float64(len(pool))/sums[side])
		}
	}
	return worst
}
