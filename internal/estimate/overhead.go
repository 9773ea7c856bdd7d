package estimate

// This file interprets the first samples of a [SpeedFit]. Prompts of one length cannot separate overhead
// from the price of a token.

const (
	// overheadPrior is the prior variance of the overhead factor, in units of the other factors' variance.
	// overheadMost is the largest overhead factor that samples of one length can set (20 ms by [DefaultSpeed]).
	overheadPrior = 10
	overheadMost  = 4.5
)

// begins reports whether f has learned only from its first few votes.
func (f *SpeedFit) begins() bool { return f.overhead && f.seen == f.n && f.n <= len(f.votes) }

// begin sets the factors to what the first few votes make most likely, whatever the factors are now. With a
// pool, all factors differ from the pool's by one ratio. Without one (nil), they start from the profile.
func (f *SpeedFit) begin(pool *SpeedFit) {
	k := min(f.n, len(f.votes))
	f.spread = 1
	f.factor = [3]float64{}
	if pool == nil {
		f.move(f.median(k), k)
	} else {
		f.factor = pool.factor
		times := f.median(k)
		for i := range f.factor {
			f.factor[i] = clip(f.at(i)*times, 1/factorCap, factorCap)
		}
	}
	f.reset()
	for _, v := range f.votes[:k] { // prompts of several lengths separate the factors
		if r := f.ratio(v); r < leapAbove && r > 1/leapAbove {
			f.step(f.units(v.parts), r-1)
		}
	}
}

// move multiplies the factors that the last k votes inform. Then the predictions for the last k votes are
// times as long as by the profile. All factors change alike, but overhead takes its probable share of the
// excess.
func (f *SpeedFit) move(times float64, k int) {
	var share [3]float64
	others, squares := 0.0, 0.0
	for i := range share {
		if share[i] = f.share(i, k); share[i] < tells {
			share[i] = 0
		} else if i > 0 {
			others += share[i]
			squares += share[i] * share[i]
		}
	}
	base, rest := times, times
	if times > 1 && share[0] > 0 && others > 0 {
		// A term's share of an error in a sum is its share of the variance.
		its := overheadPrior * share[0] * share[0]
		base = min(1+(times-1)*its/(its+squares)/share[0], overheadMost)
		rest = 1 + ((times-1)*(share[0]+others)-(base-1)*share[0])/others
	}
	for i, by := range [3]float64{base, rest, rest} {
		if share[i] > 0 {
			f.factor[i] = clip(by, 1/factorCap, factorCap)
		}
	}
}
