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
	recent [linkSamples]float64 // logarithms of seconds a byte; of the seed while there are fewer
	log    float64
	seen   int
}

const (
	linkSamples = 8
	linkRank    = 2    // of recent in order is believed: some are too short, since blocks were there already
	linkCap     = 32.0 // the estimate stays within this factor of its seed
)

// PerByte returns the learned seconds a byte, or seed where nothing was learned.
func (l *Link) PerByte(seed float64) float64 {
	if l == nil || l.seen == 0 {
		return seed
	}
	return clip(math.Exp(l.log), seed/linkCap, seed*linkCap)
}

// Samples returns how many transfers were learned from.
func (l *Link) Samples() int { return l.seen }

// Learn takes in that bytes took seconds beyond the set-up. Nothing is learned from transfers too short to
// measure.
func (l *Link) Learn(seed, bytes, seconds float64) {
	if !(bytes > 0) || !(seconds > 0) || !(seed > 0) {
		return
	}
	if l.seen == 0 {
		for i := range l.recent {
			l.recent[i] = math.Log(seed)
		}
	}
	l.recent[l.seen%linkSamples] = math.Log(clip(seconds/bytes, seed/linkCap, seed*linkCap))
	l.seen++
	sorted := l.recent
	slices.Sort(sorted[:])
	l.log = sorted[linkRank]
}
