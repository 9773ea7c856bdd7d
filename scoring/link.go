package scoring

import "math"

// Link learns the bandwidth of one path. The zero Link knows nothing. Not safe for concurrent use.
type Link struct {
	log  float64 // natural logarithm of seconds a byte
	seen int
}

const (
	linkStep = math.Ln2 // one sample changes the estimate at most twofold
	linkGain = 0.2
	linkCap  = 32.0 // the estimate stays within this factor of its seed
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

// Learn takes in that bytes took seconds beyond the set-up. Nothing is learned from transfers too short to measure.
func (l *Link) Learn(seed, bytes, seconds float64) {
	if !(bytes > 0) || !(seconds > 0) || !(seed > 0) {
		return
	}
	if l.seen == 0 {
		l.log = math.Log(seed)
	}
	sample := math.Log(clip(seconds/bytes, seed/linkCap, seed*linkCap))
	gain := max(linkGain, 1/float64(l.seen+1))
	l.log += gain * clip(sample-l.log, -linkStep, linkStep)
	l.seen++
}
