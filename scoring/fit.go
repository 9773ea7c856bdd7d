package scoring

import (
	"math"
	"slices"
	"time"
)

// Fit learns how much slower or faster than a profile an engine is, one factor a coefficient, from measured durations. The zero Fit agrees with the profile.
//
// It is recursive least squares over relative errors, so that short and long durations weigh alike, with forgetting. Three things keep outliers out:
// a sample far off counts less (Huber), a factor stays within 1/factorCap..factorCap, and only a majority of recent samples can move all factors at once.
// Not safe for concurrent use.
type Fit struct {
	factor [3]float64    // 0: 1
	cov    [3][3]float64 // of the factors
	spread float64       // running mean of the absolute relative error
	recent [5]float64    // ratios of measured to predicted, newest at n-1 modulo 5
	n      int           // samples since the factors were last moved at once
	seen   int           // samples in all
}

const (
	factorCap   = 100.0
	forgetting  = 0.98
	fitPrior    = 0.25 // variance of a factor before anything was seen
	fitTrusted  = 3    // samples before a Fit is worth using
	leapAbove   = 1.5  // the median of recent ratios beyond this, or its inverse, moves all factors at once
	huberFloor  = 0.1
	maxDuration = 15 * time.Minute
)

// Known reports whether enough was seen to use f.
func (f *Fit) Known() bool { return f.seen >= fitTrusted }

// Samples returns how many durations were learned from.
func (f *Fit) Samples() int { return f.seen }

// Learn takes in that something took so many seconds, whose parts the profile puts at the given seconds. Durations that are not positive, or absurd, are ignored.
func (f *Fit) Learn(parts [3]float64, took float64) {
	predicted := f.predict(parts)
	if !(took > 0) || took > maxDuration.Seconds() || !(predicted > 0) {
		return
	}
	if f.seen == 0 {
		f.spread = 1
		f.reset()
	}
	ratio := took / predicted
	f.recent[f.n%len(f.recent)] = ratio
	f.n++
	f.seen++
	if f.leap() {
		return
	}
	f.step(parts, predicted, ratio-1)
}

// predict returns the seconds of parts by the present factors.
func (f *Fit) predict(parts [3]float64) float64 {
	sum := 0.0
	for i, x := range parts {
		sum += x * f.at(i)
	}
	return sum
}

func (f *Fit) at(i int) float64 {
	if f.factor[i] == 0 {
		return 1
	}
	return f.factor[i]
}

func (f *Fit) reset() {
	f.cov = [3][3]float64{}
	for i := range f.factor {
		f.factor[i] = f.at(i)
		f.cov[i][i] = fitPrior * f.factor[i] * f.factor[i]
	}
}

// leap moves all factors by the median of the recent ratios where that is far from one: an engine unlike its profile, or replaced by another.
func (f *Fit) leap() bool {
	k := min(f.n, len(f.recent))
	if k < fitTrusted {
		return false
	}
	sorted := f.recent
	slices.Sort(sorted[:k])
	median := sorted[k/2]
	if median < leapAbove && median > 1/leapAbove {
		return false
	}
	for i := range f.factor {
		f.factor[i] = clip(f.factor[i]*median, 1/factorCap, factorCap)
	}
	f.n, f.spread = 0, 1
	f.reset()
	return true
}

// step is one update of recursive least squares for a relative error, with features as shares of the prediction.
func (f *Fit) step(parts [3]float64, predicted, miss float64) {
	huber := max(huberFloor, 2*f.spread)
	weight := min(1, huber/math.Abs(miss))
	f.spread += 0.1 * (min(math.Abs(miss), 1) - f.spread)

	var x, px [3]float64
	for i := range x {
		x[i] = parts[i] / predicted
	}
	for i := range px {
		for j := range x {
			px[i] += f.cov[i][j] * x[j]
		}
	}
	// The noise of one sample is taken as 10 % of its prediction.
	const noise = 0.01
	denominator := noise*forgetting/weight + x[0]*px[0] + x[1]*px[1] + x[2]*px[2]
	var prior float64
	for i := range px {
		prior = max(prior, f.cov[i][i]/(f.factor[i]*f.factor[i]))
	}
	keep := forgetting
	if prior > fitPrior { // nothing new is learned about some factor: forgetting would blow its variance up
		keep = 1
	}
	for i := range px {
		for j := range px {
			f.cov[i][j] = (f.cov[i][j] - px[i]*px[j]/denominator) / keep
		}
		f.factor[i] = clip(f.factor[i]+px[i]/denominator*miss, 1/factorCap, factorCap)
	}
}

// PrefillParts returns the profile's seconds of a prefill, a part for each coefficient.
func (s Speed) PrefillParts(uncached, cached int) [3]float64 {
	u, c := float64(max(uncached, 0)), float64(max(cached, 0))
	return [3]float64{s.T0, s.A * u, s.B * (u*c + u*u/2)}
}

// StepParts returns the profile's seconds of a decode step, a part for each coefficient.
func (s Speed) StepParts(batch, kv float64) [3]float64 {
	return [3]float64{s.D0, s.D1 * batch, s.D2 * kv}
}

// WithPrefill returns s with the prefill half corrected by f.
func (s Speed) WithPrefill(f *Fit) Speed {
	s.T0, s.A, s.B = s.T0*f.at(0), s.A*f.at(1), s.B*f.at(2)
	return s
}

// WithDecode returns s with the decode half corrected by f.
func (s Speed) WithDecode(f *Fit) Speed {
	s.D0, s.D1, s.D2 = s.D0*f.at(0), s.D1*f.at(1), s.D2*f.at(2)
	return s
}

func clip(x, low, high float64) float64 { return max(low, min(x, high)) }
