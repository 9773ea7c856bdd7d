package estimate

// This file is what the first samples of a [SpeedFit] are taken for. Prompts of one length cannot tell
// overhead from the price of a token.

const (
	// How many times the variance of the others' that of the factor of overhead is before anything was seen,
	// and the largest one that samples of one length are believed (20 ms by [DefaultSpeed]).
	overheadPrior = 10
	overheadMost  = 4.5
)

// begins reports whether all that f has learned from are its first few votes.
func (f *SpeedFit) begins() bool { return f.overhead && f.seen == f.n && f.n <= len(f.votes) }

// begin makes of the first few votes what is likeliest, whatever the factors are by now: as many times as
// slow at everything as the pool, where that has seen more, and by the profile where pool is nil.
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
	for _, v := range f.votes[:k] { // prompts of several lengths tell which of the factors it was
		if r := f.ratio(v); r < leapAbove && r > 1/leapAbove {
			f.step(f.units(v.parts), r-1)
		}
	}
}

// move makes the last k votes take so many times as long as the profile has it, by the factors that they
// tell of. All move alike, but that overhead takes as much of what is too long as is likely its own.
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
		// Of an error in a sum each part has as much as its variance is of all of it.
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
