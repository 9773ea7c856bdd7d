package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
)

// Figures are the usual numbers of a set of requests, in seconds.
type Figures struct {
	TTFT, TPOT, E2E Spread
}

// Spread is a mean and two percentiles.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

// figures of the given requests.
func figures(ts []Timing) Figures {
	var first, pace, last []float64
	for _, t := range ts {
		first, last = append(first, t.First.Seconds()), append(last, t.Last.Seconds())
		if t.Output > 1 {
			pace = append(pace, (t.Last-t.First).Seconds()/float64(t.Output-1))
		}
	}
	return Figures{spread(first), spread(pace), spread(last)}
}

func spread(xs []float64) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	slices.Sort(xs)
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return Spread{sum / float64(len(xs)), quantile(xs, 0.5), quantile(xs, 0.99)}
}

// quantile of sorted values. It interpolates between neighbours.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Errors are relative: 0.05 is 5 % more than measured.
func (f Figures) errors(measured Figures) Figures {
	return Figures{f.TTFT.over(measured.TTFT), f.TPOT.over(measured.TPOT), f.E2E.over(measured.E2E)}
}

func (s Spread) over(m Spread) Spread {
	return Spread{s.Mean/m.Mean - 1, s.P50/m.P50 - 1, s.P99/m.P99 - 1}
}

// worst is the largest amount in the figures.
func (f Figures) worst() float64 {
	w := 0.0
	for _, s := range []Spread{f.TTFT, f.TPOT, f.E2E} {
		w = max(w, math.Abs(s.Mean), math.Abs(s.P50), math.Abs(s.P99))
	}
	return w
}

// loss is the sum that calibration minimises: the squared relative errors of each request's TPOT, TTFT and
// total time. The first third of a run shows an engine that is not overloaded; calibration ignores the rest.
func loss(simulated, measured []Timing) float64 {
	sum := 0.0
	for i, m := range measured {
		s := simulated[i]
		sum += square(s.Last.Seconds()/m.Last.Seconds() - 1)
		if m.Output > 1 {
			sum += square((s.Last-s.First).Seconds()/(m.Last-m.First).Seconds() - 1)
		}
		// When a request arrives within a step is random.
		sum += 0.1 * square(min(1, s.First.Seconds()/m.First.Seconds()-1))
	}
	return sum / float64(len(measured))
}

func square(x float64) float64 { return x * x }

// calibrate finds the tuning that fits the first n measured requests best. token says whether to fit a link
// between GPUs.
func (r *Recording) calibrate(n int, token bool) (kernels.Tuning, error) {
	c := calibration{
		miss:  func(t kernels.Tuning) (float64, error) { return r.miss(t, n) },
		best:  kernels.Tuning{Scale: 1, Host: 0.0005},
		steps: [3]float64{0.1, 0.001, 0},
	}
	if token {
		c.steps[2] = 1e-5
	}
	err := c.descend()
	return c.best, err
}

// calibration searches the tuning with the least loss, one parameter after the other.
type calibration struct {
	miss  func(kernels.Tuning) (float64, error)
	best  kernels.Tuning
	least float64    // miss of best
	steps [3]float64 // of scale, host and token; 0: this parameter stays
}

// descend halves the steps when no step improves the tuning, until they are small.
func (c *calibration) descend() error {
	var err error
	if c.least, err = c.miss(c.best); err != nil {
		return err
	}
	for range 40 {
		improved := false
		for d := range c.steps {
			better, err := c.along(d)
			if err != nil {
				return err
			}
			improved = improved || better
		}
		if improved {
			continue
		}
		for d := range c.steps {
			c.steps[d] /= 2
		}
		if c.steps[0] < 0.002 {
			break
		}
	}
	return nil
}

// along tries one step up parameter d, then one down, and keeps the first that is better.
func (c *calibration) along(d int) (better bool, err error) {
	if c.steps[d] == 0 {
		return false, nil
	}
	for _, by := range []float64{c.steps[d], -c.steps[d]} {
		try := c.best
		switch d {
		case 0:
			try.Scale = max(0.2, try.Scale+by)
		case 1:
			try.Host = max(0, try.Host+by)
		case 2:
			try.Token = max(0, try.Token+by)
		}
		miss, err := c.miss(try)
		if err != nil {
			return false, err
		}
		if miss < c.least {
			c.best, c.least = try, miss
			return true, nil
		}
	}
	return false, nil
}

func (r *Recording) miss(tune kernels.Tuning, n int) (float64, error) {
	got, err := r.simulate(tune, false)
	if err != nil {
		return 0, err
	}
	return loss(got[:n], r.Measured[:n]), nil
}

// byFormula replaces the tables of r by the formula of simulated engines, fitted to these tables. All other
// plays use formulas that were fitted in this way.
func (r *Recording) byFormula() *Recording {
	steps := pureSteps()
	seconds := make([]float64, len(steps))
	for i := range steps {
		alike := make([]*kernels.Rank, r.Ranks) // all ranks have the same work
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

// pureSteps are steps that only compute one prompt and steps that only decode, of usual sizes.
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

// stepTime returns the time of a step of all ranks together, in seconds.
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
