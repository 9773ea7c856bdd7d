package estimate

import "slices"

// Handover learns what a transfer takes whatever its size: what engines do with a request before and after
// its blocks move. The zero Handover knows nothing. Not safe for concurrent use.
//
// Each disturbance makes a measurement longer: the running step of the receiver, other transfers, a slow
// event loop. So the estimate follows the faster of the last few measurements, without the time for their
// bytes.
type Handover struct {
	faster // of seconds
}

// HandoverMost is the most seconds that are believed: what takes longer is not the same for all transfers.
// Of one whose bytes take longer than that, an error of the link's speed may be all that is left.
const HandoverMost = 0.05

// Seconds returns the learned time, or seed before the first sample.
func (h *Handover) Seconds(seed float64) float64 {
	if h.seen == 0 {
		return seed
	}
	return h.believe
}

// Learn takes in that a transfer took so many seconds, of which so many were predicted for its bytes and for
// those of others before them.
func (h *Handover) Learn(seed, took, bytes float64) {
	if bytes <= HandoverMost {
		h.add(clip(took-bytes, 0, HandoverMost), seed)
	}
}

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
