package claims

import (
	"math/rand/v2"
	"slices"
)

// Estimate is a figure with its confidence interval.
type Estimate struct {
	Value, Low, High float64 // 95 % of resamples lie within Low and High
	Note             string  // the figures from which it is computed
}

// resamples is the number of resamples.
const resamples = 1000

// bootstrap computes value once with every session, and again with as many sessions drawn with replacement.
// All requests of a session, in all seeds and with all policies, are drawn together, so that a difference
// compares the same requests.
func bootstrap(sessions int, value func(times []float64) float64) Estimate {
	times := ones(sessions)
	e := Estimate{Value: value(times)}
	if sessions == 0 {
		return e
	}
	rnd := rand.New(rand.NewPCG(uint64(sessions), 0x626f6f74))
	drawn := make([]float64, resamples)
	for k := range drawn {
		clear(times)
		for range times {
			times[rnd.IntN(sessions)]++
		}
		drawn[k] = value(times)
	}
	slices.Sort(drawn)
	e.Low, e.High = drawn[resamples/40], drawn[resamples-1-resamples/40]
	return e
}

// reduction is the share by which a is below b.
func reduction(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return 1 - a/b
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func difference(a, b float64) float64 { return a - b }

// compare compares figure f of a policy's runs with another policy's, request by request and seed by seed.
func compare(f figure, a, b []*Trial, with func(a, b float64) float64) Estimate {
	both := common(a, b)
	sa, sb := sampleOf(f, a, both), sampleOf(f, b, both)
	return bootstrap(units(a, b), func(times []float64) float64 { return with(sa.sum(times), sb.sum(times)) })
}

// plain returns the figure itself.
func plain(f figure, runs []*Trial) Estimate {
	s := sampleOf(f, runs, nil)
	return bootstrap(units(runs), s.sum)
}

// value returns the figure without its interval.
func value(f figure, runs []*Trial) float64 {
	return sampleOf(f, runs, nil).sum(ones(units(runs)))
}

func ones(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
	}
	return out
}
