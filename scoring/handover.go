package scoring

// Handover learns what a transfer takes whatever its size: what engines do with a request before and after
// its blocks move. The zero Handover knows nothing. Not safe for concurrent use.
//
// As of a [Link], the faster ones of the last few are believed, by what is left of them once their bytes are
// accounted for.
type Handover struct {
	faster // of seconds
}

// handoverMost is the most seconds that are believed: what takes longer is not the same for all transfers.
// Of one whose bytes take longer than that, an error of the link's speed may be all that is left.
const handoverMost = 0.05

// Seconds returns what was learned, or seed where nothing was.
func (h *Handover) Seconds(seed float64) float64 {
	if h.seen == 0 {
		return seed
	}
	return h.believe
}

// Learn takes in that a transfer took so many seconds, of which so many were predicted for its bytes and for
// those of others before them.
func (h *Handover) Learn(seed, took, bytes float64) {
	if bytes <= handoverMost {
		h.add(clip(took-bytes, 0, handoverMost), seed)
	}
}
