package replay

import (
	"cmp"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
)

// byFormula returns r with the formula of simulated engines, fitted to its tables, in their place: all claims
// of replay are played with formulas that were made so.
func (r *Recording) byFormula() *Recording {
	steps := pureSteps()
	seconds := make([]float64, len(steps))
	for i := range steps {
		alike := make([]*kernels.Rank, r.Ranks) // every rank has as much to do
		for k := range alike {
			alike[k] = &steps[i]
		}
		seconds[i] = r.Tables.Step(alike, kernels.Tuning{Scale: 1})
	}
	f := *r
	cost := core.FitCost(steps, seconds)
	f.Formula = &cost
	return &f
}

// pureSteps are steps that compute one prompt and steps that decode, of the sizes that engines see.
func pureSteps() (steps []core.Batch) {
	for _, tokens := range []int{128, 256, 512, 1024, 2048, 4096, 8192} {
		for _, before := range []int{0, 2048, 8192} {
			steps = append(steps, core.Batch{Chunks: []core.Chunk{{New: tokens, Computed: before}}})
		}
	}
	for _, sequences := range []int{1, 4, 16, 64, 128, 256} {
		for _, context := range []int{128, 1024, 4096} {
			steps = append(steps, core.Batch{Decode: sequences, Context: sequences * context})
		}
	}
	return steps
}

// stepTime returns the seconds of a step that all ranks make together.
func (r *Recording) stepTime(ranks []*kernels.Rank, tune kernels.Tuning) float64 {
	if r.Formula == nil {
		return r.Tables.Step(ranks, tune)
	}
	slowest, tokens := 0.0, 0
	for _, b := range ranks {
		slowest = max(slowest, r.Formula.Seconds(b))
		tokens += max(1, b.Tokens())
	}
	return cmp.Or(tune.Scale, 1)*slowest + tune.Host + tune.Token*float64(tokens)
}
