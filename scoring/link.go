package scoring

import (
	"math"
	"slices"
)

// Link learns the bandwidth of one path. The zero Link knows nothing. Not safe for concurrent use.
//
// All that disturbs a measurement makes it longer: the step that is under way where the blocks arrive, other
// transfers, a slow event loop. A mean would follow those, and plans that differ by nothing else would run
// after them from path to path (decision 0014). So it believes the faster ones of the last few.
type Link struct {
	faster         // of logarithms of seconds a byte
	most   float64 // bytes of the longest transfer of late
}

// What bounds an estimate. A seed may be a guess: of two engines behind one name it is 100 GB/s, and what is
// between them may be a wire of 1 Gbit/s.
const (
	linkCap  = 32.0  // it stays within this factor of its seed,
	linkSlow = 0.1e9 // or falls to so many bytes a second, where that is slower
)

// within returns perByte within the bounds that seed gives it.
func within(seed, perByte float64) float64 {
	return clip(perByte, seed/linkCap, max(seed*linkCap, 1/linkSlow))
}

// linkForgets is what is left, with each transfer, of how long the longest was.
const linkForgets = 0.95

// faster is the last few of some samples, and which of the faster ones is believed.
type faster struct {
	recent  [fasterOf]float64 // the seed while there are fewer
	believe float64
	seen    int
}

const (
	fasterOf   = 8
	fasterRank = 2 // of recent in order is believed: some are too short, since blocks were there already
)

// begin makes x what is believed, until so many samples are seen.
func (f *faster) begin(x float64, seen int) {
	for i := range f.recent {
		f.recent[i] = x
	}
	f.believe, f.seen = x, seen
}

// add takes in a sample; before the first the seed is believed.
func (f *faster) add(x, seed float64) {
	if f.seen == 0 {
		f.begin(seed, 0)
	}
	f.recent[f.seen%fasterOf] = x
	f.seen++
	sorted := f.recent
	slices.Sort(sorted[:])
	f.believe = sorted[fasterRank]
}

// PerByte returns the learned seconds a byte, or seed where nothing was learned.
func (l *Link) PerByte(seed float64) float64 {
	if l == nil || l.seen == 0 {
		return seed
	}
	return within(seed, math.Exp(l.believe))
}

// Samples returns how many transfers were learned from.
func (l *Link) Samples() int { return l.seen }

// Learn takes in that bytes took seconds beyond the set-up. Nothing is learned from transfers too short to
// measure.
func (l *Link) Learn(seed, bytes, seconds float64) {
	if !(bytes > 0) || !(seconds > 0) || !(seed > 0) {
		return
	}
	// Of a short one what handing over takes is a large part, and an error of that is taken for the link's.
	if l.most = max(bytes, linkForgets*l.most); 2*bytes < l.most {
		return
	}
	l.add(math.Log(within(seed, seconds/bytes)), math.Log(seed))
}
