package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

const (
	// The blocks in use are estimated after so many steps, from few to many, as finely as lengths are known.
	firstLook = 8
	looks     = 23 // up to 2^14 steps
	lookAhead = math.Sqrt2
	// surely is how many standard deviations above the expected use are kept free. An engine with too little
	// room takes it from a running request, and computes that request again. With 1, a hundred requests of an
	// overloaded fleet lost their blocks, with 1.5 one, and with 2 fewer find room (docs/decisions/0035).
	surely = 1.5
	// unsure is the growth, in blocks, up to which the share is always 1.
	unsure = 64
)

// measureAtOnce estimates the share for m's leases by the lengths of answers and the present tokens of each.
// known (0..1) says how far lengths are learned. While lengths are guessed, the share is nearly 1, because a
// wrong guess is wrong for all answers together.
func measureAtOnce(m *member, perToken, known float64, now time.Time) atOnce {
	var u use
	growth, size := 0, m.cache().blockSize()
	for _, e := range m.account.Leases() {
		l := owner(e)
		if e.State() == ledger.Reserved {
			continue
		}
		has := l.generated(perToken, now)
		growth += l.expectedGrowth(has)
		// Only blocks that come free at the end count: other requests may use the blocks that were cached before.
		own := float64(max(0, blocksOf(e.Tokens, size)*size-e.Matched))/float64(l.entry.Sequences) + float64(has)
		u.add(l, has, own, size)
	}
	share := min(1, (u.peak()+unsure)/float64(growth+unsure))
	return atOnce{share: 1 - known*(1-share), at: now}
}

// use is the additional blocks in use at each look, with their variance.
type use struct {
	more, variance [looks]float64
	lives          [looks]float64 // scratch
}

// add adds a lease whose sequences have has tokens each. own is the blocks per sequence that come free at
// the end.
func (u *use) add(l *Lease, has int, own float64, blockSize int) {
	limit := math.Inf(1)
	if l.limit >= 0 {
		limit = float64(l.limit - has)
	}
	l.lengths.Survive(has, lookSteps[:], u.lives[:])
	n, size := float64(l.entry.Sequences), float64(blockSize)
	for k, lives := range u.lives {
		steps := lookSteps[k]
		if steps/lookAhead >= limit {
			lives = 0 // it ended before the last look
		}
		then := (own + min(steps, limit)) / size
		u.more[k] += n * (lives*then - own/size)
		u.variance[k] += n * lives * (1 - lives) * then * then
	}
}

// peak returns a safe upper bound of the use at any look.
func (u *use) peak() float64 {
	peak := 0.0
	for k := range u.more {
		peak = max(peak, u.more[k]+surely*math.Sqrt(u.variance[k]))
	}
	return peak
}

var lookSteps = func() (steps [looks]float64) {
	at := float64(firstLook)
	for k := range steps {
		steps[k] = at
		at *= lookAhead
	}
	return steps
}()
