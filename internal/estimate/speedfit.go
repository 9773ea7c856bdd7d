package estimate

import (
	"math"
	"slices"
	"time"
)

// SpeedFit learns from measured durations how much slower or faster than a profile an engine is, with one
// factor for each coefficient. The zero SpeedFit equals the profile.
//
// It is recursive least squares over relative errors, with forgetting, so that short and long durations
// weigh alike. A sample changes only the factors that have a real share in its prediction: a short prompt is
// nearly all overhead and says nothing about the price of a token. Prompts of one length cannot separate
// overhead from the price of a token. The first few samples therefore count as the likelier of the two (see
// overhead.go). Three rules keep outliers out: a sample far off counts less (Huber), a factor stays within
// 1/factorCap..factorCap, and only a majority of recent votes can move factors at once. Not safe for
// concurrent use.
type SpeedFit struct {
	// The fields that every plan reads stand together.
	factor [3]float64 // 0: 1
	told   [3]bool    // some sample informed the factor
	seen   int        // number of samples
	noise  float64    // running mean of the absolute relative error of settled samples
	calm   int        // number of settled samples
	// The first coefficient of the newest sample is pure prefill overhead, without decoding beside it: host,
	// kernel launches and HTTP, which profiles do not contain.
	overhead bool

	cov    [3][3]float64 // of the factors
	spread float64       // running mean of the absolute relative error of all samples, beginning with 1
	votes  [5]vote       // newest at n-1 modulo 5
	n      int           // votes since factors were last moved at once
}

// vote is a sample that represents one moment: work, by the profile, and its duration. Its ratio is computed
// with the present factors, because they may have followed the vote already.
type vote struct {
	parts Work
	took  float64
}

const (
	factorCap   = 100.0
	forgetting  = 0.98
	fitPrior    = 0.25 // variance of a factor before any sample
	fitTrusted  = 3    // samples before a SpeedFit is used
	leapAbove   = 1.5  // a median of recent ratios beyond this, or its inverse, moves factors at once
	tells       = 0.2  // least share of a prediction with which a sample informs a factor
	sampleNoise = 0.1  // relative error that one sample is assumed to have
	calmMost    = 16   // further settled samples make no estimate more certain, because they share their moments
	poolCap     = 32.  // a member's factor stays within this factor of its pool's
	maxDuration = 15 * time.Minute
)

// Known reports whether f has enough samples to be used.
func (f *SpeedFit) Known() bool { return f.seen >= fitTrusted }

// Samples returns the number of samples.
func (f *SpeedFit) Samples() int { return f.seen }

// Learn records that work took so many seconds. Durations that are not positive, or absurd, are ignored.
func (f *SpeedFit) Learn(parts Work, took float64) { f.learn(parts, took, true) }

// learn is Learn. apart says that the sample is of another moment than the one before. Samples of one moment
// share one vote, the least surprising: a pause slows everything that ran at the time.
func (f *SpeedFit) learn(parts Work, took float64, apart bool) {
	predicted := f.predict(parts)
	if !(took > 0) || took > maxDuration.Seconds() || !(predicted > 0) {
		return
	}
	if f.seen == 0 {
		f.spread = 1
		f.reset()
	}
	ratio := took / predicted
	f.seen++
	x := f.units(parts)
	for i := range x {
		f.told[i] = f.told[i] || x[i] > 0
	}
	f.cast(vote{parts, took}, apart)
	begins := f.begins()
	if !begins && f.leap() {
		return
	}
	f.settle(ratio - 1)
	if begins {
		f.begin(nil)
		return
	}
	f.step(x, ratio-1)
}

// cast adds v to the votes.
func (f *SpeedFit) cast(v vote, apart bool) {
	if apart || f.n == 0 {
		f.votes[f.n%len(f.votes)] = v
		f.n++
		return
	}
	if last := &f.votes[(f.n-1)%len(f.votes)]; math.Abs(
		math.Log(f.ratio(v)),
	) < math.Abs(math.Log(f.ratio(*last))) {
		*last = v
	}
}

// ratio returns the duration of v divided by its present prediction.
func (f *SpeedFit) ratio(v vote) float64 { return v.took / f.predict(v.parts) }

// settle adds the error of a sample to the noise, once the factors have settled.
func (f *SpeedFit) settle(miss float64) {
	if f.seen < fitTrusted {
		return
	}
	f.calm++
	f.noise += (min(math.Abs(miss), 1) - f.noise) / float64(min(f.calm, 20))
}

// Error returns the relative error of predictions that the noise of single samples explains, 1 or more with
// too few samples.
func (f *SpeedFit) Error() float64 {
	if f.calm == 0 {
		return 1
	}
	return max(sampleNoise, 2*f.noise/math.Sqrt(float64(min(f.calm, calmMost))))
}

// Within returns the factors of a member of a pool. A factor that the member's samples inform is the member's
// own, kept within poolCap of the pool's factor. Each other factor is the pool's.
func (f *SpeedFit) Within(pool *SpeedFit) Factors {
	var out Factors
	for i := range out {
		switch {
		case !f.told[i]:
			out[i] = pool.at(i)
		case !pool.told[i]:
			out[i] = f.at(i)
		default:
			out[i] = clip(f.at(i), pool.at(i)/poolCap, pool.at(i)*poolCap)
		}
	}
	return out
}

// Of returns the factors of a member of a pool, by its own samples or, while these are too few, by the
// pool's. It returns false if both have too few: more samples than usual are needed.
func (f *SpeedFit) Of(pool *SpeedFit, more int) (factors Factors, known bool) {
	switch {
	case f.seen >= fitTrusted+more:
		return f.Within(pool), true
	case pool.seen >= fitTrusted+more:
		return pool.Within(pool), true
	}
	return factors, false
}

// Factors say how much slower than the profile an engine is, one for each coefficient.
type Factors [3]float64

// Prefills returns the prefill half of the Speed with these factors, unknown if f is zero.
func (f Factors) Prefills() Speed {
	return DefaultSpeed().WithPrefill(f).PrefillHalf()
}

// predict returns the seconds of parts by the present factors.
func (f *SpeedFit) predict(parts Work) float64 {
	sum := 0.0
	for i, x := range parts {
		sum += x * f.at(i)
	}
	return sum
}

func (f *SpeedFit) at(i int) float64 {
	if f.factor[i] == 0 {
		return 1
	}
	return f.factor[i]
}

func (f *SpeedFit) reset() {
	f.cov = [3][3]float64{}
	for i := range f.factor {
		f.factor[i] = f.at(i)
		f.cov[i][i] = fitPrior * f.factor[i] * f.factor[i]
	}
}

// leap moves the factors that recent votes inform by the median of their ratios, if the median is far from
// one: the engine is unlike its profile, or was replaced.
func (f *SpeedFit) leap() bool {
	k := min(f.n, len(f.votes))
	if k < fitTrusted {
		return false
	}
	median, newest := f.median(k), f.ratio(f.votes[(f.n-1)%len(f.votes)])
	if slower, faster := min(median, newest) >= leapAbove, max(median, newest) <= 1/leapAbove; !slower &&
		!faster {
		return false // or the older votes only show that the newest has moved the factors
	}
	for i := range f.factor {
		if f.share(i, k) >= tells {
			f.factor[i] = clip(f.factor[i]*median, 1/factorCap, factorCap)
		}
	}
	f.n = 0
	f.calm = 0
	f.noise = 0
	f.spread = 1
	f.reset()
	return true
}

// median returns the median ratio of the last k votes.
func (f *SpeedFit) median(k int) float64 {
	var sorted [len(f.votes)]float64
	for i, v := range f.votes[:k] {
		sorted[i] = f.ratio(v)
	}
	slices.Sort(sorted[:k])
	return sorted[k/2]
}

// share returns the mean share of factor i in the last k votes.
func (f *SpeedFit) share(i, k int) float64 {
	sum := 0.0
	for _, v := range f.votes[:k] {
		sum += v.parts[i] * f.at(i) / f.predict(v.parts)
	}
	return sum / float64(k)
}

// units returns, for each factor, the share of the prediction per unit of the factor, or 0 for a factor that
// the sample does not inform.
func (f *SpeedFit) units(parts Work) (x [3]float64) {
	predicted := f.predict(parts)
	whole := parts[0] + parts[1] + parts[2]
	for i, part := range parts {
		// The profile's share counts too: a factor that shrank to nothing must be able to grow again.
		if max(part*f.at(i)/predicted, part/whole) >= tells {
			x[i] = part / predicted
		}
	}
	return x
}

// step is one update of recursive least squares for a relative error. x is what [SpeedFit.units] returned: a
// factor with 0 stays as it is.
func (f *SpeedFit) step(x [3]float64, miss float64) {
	huber := max(sampleNoise, 2*f.spread)
	weight := min(1, huber/math.Abs(miss))
	f.spread += 0.1 * (min(math.Abs(miss), 1) - f.spread)

	var px [3]float64
	for i := range px {
		for j := range x {
			px[i] += f.cov[i][j] * x[j]
		}
	}
	denominator := sampleNoise*sampleNoise*forgetting/weight + x[0]*px[0] + x[1]*px[1] + x[2]*px[2]
	for i := range px {
		for j := range px {
			f.cov[i][j] -= px[i] * px[j] / denominator
		}
		f.factor[i] = clip(f.factor[i]+px[i]/denominator*miss, 1/factorCap, factorCap)
	}
	f.forget(x)
}

// forget lets the variance of the factors that the sample informed grow again. x says how much each factor
// counted. The variance of the other factors would grow without end.
func (f *SpeedFit) forget(x [3]float64) {
	for i := range x {
		if x[i] == 0 || f.cov[i][i] > forgetting*fitPrior*f.factor[i]*f.factor[i] {
			continue
		}
		grow := 1 / math.Sqrt(forgetting)
		for j := range x {
			f.cov[i][j] *= grow
			f.cov[j][i] *= grow
		}
	}
}

// PrefillParts returns the profile's seconds of a prefill, a part for each coefficient.
func (s Speed) PrefillParts(uncached, cached int) Work {
	u, c := float64(max(uncached, 0)), float64(max(cached, 0))
	return Work{s.T0, s.A * u, s.B * (u*c + u*u/2)}
}

// StepParts returns the profile's seconds of a decode step, a part for each coefficient.
func (s Speed) StepParts(batch, kv float64) Work {
	return Work{s.D0, s.D1 * batch, s.D2 * kv}
}

// WithPrefill returns s with the prefill half corrected by f.
func (s Speed) WithPrefill(f Factors) Speed {
	s.T0 = s.T0 * f[0]
	s.A = s.A * f[1]
	s.B = s.B * f[2]
	return s
}

// WithDecode returns s with the decode half corrected by f.
func (s Speed) WithDecode(f Factors) Speed {
	s.D0 = s.D0 * f[0]
	s.D1 = s.D1 * f[1]
	s.D2 = s.D2 * f[2]
	return s
}

func clip(x, low, high float64) float64 { return max(low, min(x, high)) }
