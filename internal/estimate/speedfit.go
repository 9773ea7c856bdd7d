package estimate

import (
	"math"
	"slices"
	"time"
)

// SpeedFit learns how much slower or faster than a profile an engine is, one factor a coefficient, from
// measured durations. The zero SpeedFit agrees with the profile.
//
// It is recursive least squares over relative errors, so that short and long durations weigh alike, with
// forgetting. A sample teaches those factors alone that have a real share in its prediction: of a short
// prompt, which is nearly all overhead, nobody learns what a token costs. Prompts of one length cannot tell
// overhead from the price of a token: the first few are taken for what is likelier of the two, so that no
// other length is predicted from overhead taken for a price. Three things keep outliers out: a sample far
// off counts less (Huber), a factor stays within 1/factorCap..factorCap, and only a majority of recent
// votes can move factors at once. Not safe for concurrent use.
type SpeedFit struct {
	// What every plan asks of every engine stands together.
	factor [3]float64 // 0: 1
	told   [3]bool    // some sample could tell of the factor
	seen   int        // samples in all
	noise  float64    // running mean of the absolute relative error of settled samples
	calm   int        // how many those are
	// The first coefficient of the sample is overhead of prefills, beside which the engine did nothing else:
	// host, kernel launches and HTTP, of which profiles know nothing.
	overhead bool

	cov    [3][3]float64 // of the factors
	spread float64       // running mean of the absolute relative error of all samples, beginning with 1
	votes  [5]vote       // newest at n-1 modulo 5
	n      int           // votes since factors were last moved at once
}

// vote is what one moment said: what the profile puts at the given seconds took so long. What it says of the
// factors is asked of those that hold by now: they may have followed it already.
type vote struct {
	parts Work
	took  float64
}

const (
	factorCap   = 100.0
	forgetting  = 0.98
	fitPrior    = 0.25 // variance of a factor before anything was seen
	fitTrusted  = 3    // samples before a SpeedFit is worth using
	leapAbove   = 1.5  // the median of recent ratios beyond this, or its inverse, moves factors at once
	tells       = 0.2  // of its prediction, is the share from which on a sample says something of a factor
	huberFloor  = 0.1
	sampleNoise = 0.1 // of its prediction, is what one sample is taken to be off
	calmMost    = 16  // settled samples beyond these make an estimate no surer: they share their moments
	poolCap     = 32. // a member's factor is believed within this of its pool's
	maxDuration = 15 * time.Minute
)

// Known reports whether enough was seen to use f.
func (f *SpeedFit) Known() bool { return f.seen >= fitTrusted }

// Samples returns how many durations were learned from.
func (f *SpeedFit) Samples() int { return f.seen }

// Learn takes in that something took so many seconds, whose parts the profile puts at the given seconds.
// Durations that are not positive, or absurd, are ignored.
func (f *SpeedFit) Learn(parts Work, took float64) { f.learn(parts, took, true) }

// learn is Learn; apart says that the sample is of another moment than the one before. Samples of one moment
// have one vote together, which is the one that surprises least: whatever stood still for a while made all
// that ran then slow.
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

// cast enters v among the votes.
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

// ratio is what v took by what it would be taken to take now.
func (f *SpeedFit) ratio(v vote) float64 { return v.took / f.predict(v.parts) }

// settle takes the miss of a sample into the noise, once the factors have found their places.
func (f *SpeedFit) settle(miss float64) {
	if f.seen < fitTrusted {
		return
	}
	f.calm++
	f.noise += (min(math.Abs(miss), 1) - f.noise) / float64(min(f.calm, 20))
}

// Error returns by which share of themselves predictions may be off for what single samples are off: 1 and
// more where too little was seen.
func (f *SpeedFit) Error() float64 {
	if f.calm == 0 {
		return 1
	}
	return max(sampleNoise, 2*f.noise/math.Sqrt(float64(min(f.calm, calmMost))))
}

// Within returns the factors that hold for a member of a pool: its own where some sample could tell, though
// not out of all proportion to the pool's, and the pool's where none could.
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

// Of returns the factors that hold for a member of a pool, by its own samples or, while those are too few,
// by the pool's; false where neither has seen enough.
func (f *SpeedFit) Of(pool *SpeedFit) (factors Factors, known bool) {
	switch {
	case f.Known():
		return f.Within(pool), true
	case pool.Known():
		return pool.Within(pool), true
	}
	return factors, false
}

// Factors say how much slower than the profile an engine is, one for each coefficient.
type Factors [3]float64

// Prefills returns the prefill half of a Speed that differs so from the profile, unknown where f is zero.
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

// leap moves the factors that recent votes can tell of by the median of their ratios where that is far from
// one: an engine unlike its profile, or replaced by another.
func (f *SpeedFit) leap() bool {
	k := min(f.n, len(f.votes))
	if k < fitTrusted {
		return false
	}
	median, newest := f.median(k), f.ratio(f.votes[(f.n-1)%len(f.votes)])
	if slower, faster := min(median, newest) >= leapAbove, max(median, newest) <= 1/leapAbove; !slower &&
		!faster {
		return false // or the older votes only say that the newest has moved the factors
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

// median returns that of what the last k votes took by what they would be taken to take now.
func (f *SpeedFit) median(k int) float64 {
	var sorted [len(f.votes)]float64
	for i, v := range f.votes[:k] {
		sorted[i] = f.ratio(v)
	}
	slices.Sort(sorted[:k])
	return sorted[k/2]
}

// share returns which share of the last k votes factor i has, on average.
func (f *SpeedFit) share(i, k int) float64 {
	sum := 0.0
	for _, v := range f.votes[:k] {
		sum += v.parts[i] * f.at(i) / f.predict(v.parts)
	}
	return sum / float64(k)
}

// units returns what a unit of each factor is of a prediction, 0 of those of which it says nothing.
func (f *SpeedFit) units(parts Work) (x [3]float64) {
	predicted := f.predict(parts)
	whole := parts[0] + parts[1] + parts[2]
	for i, part := range parts {
		// By the profile too: a factor that was learned to be nothing must be able to come back.
		if max(part*f.at(i)/predicted, part/whole) >= tells {
			x[i] = part / predicted
		}
	}
	return x
}

// step is one update of recursive least squares for a relative error, with what a unit of each factor is of
// the prediction: 0 for one that is taken as given.
func (f *SpeedFit) step(x [3]float64, miss float64) {
	huber := max(huberFloor, 2*f.spread)
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

// forget lets the variance of the factors that a sample told of grow again, of which x says how much each
// counted. Of others nothing new was learned: their variance would grow without end.
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
