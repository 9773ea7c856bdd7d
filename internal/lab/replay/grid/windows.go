package grid

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Windows count the measured requests of a play by their arrival, in windows of one length: the number of
// requests, and the numbers of answers that kept each goal. Two policies have the same requests in each
// window, except if a session's next request waits for the previous answer.
type Windows struct {
	Asked []int `json:"asked"`
	Usual []int `json:"good"`
	Tight []int `json:"good_tight"`
}

// windowsOfPlay is the number of windows in the time in which sessions start.
const windowsOfPlay = 48

// mostWindows bounds the number of windows: sessions may last far longer than their starts. The last window
// has all that comes later.
const mostWindows = 4 * windowsOfPlay

// windows divides a play into windows.
func windows(rs []cluster.Record) Windows {
	from := replay.WarmUp(rs)
	last := from * 5 // a warm-up is a fifth of the time in which sessions start
	every := max(1, (last-from)/windowsOfPlay)
	var w Windows
	for i := range rs {
		x := &rs[i]
		if x.At < from {
			continue
		}
		at := min(int((x.At-from)/every), mostWindows-1)
		for len(w.Asked) <= at {
			w.Asked = append(w.Asked, 0)
			w.Usual = append(w.Usual, 0)
			w.Tight = append(w.Tight, 0)
		}
		w.Asked[at]++
		w.Usual[at] += one01(replay.Usual.Keeps(x))
		w.Tight[at] += one01(replay.Tight.Keeps(x))
	}
	return w
}

// pairing is two policies in the same play.
type pairing struct{ a, b Windows }

// Constants of the bootstrap.
const (
	blockLength = 4 // windows that are drawn together, one after the other: a twelfth of a play
	resamples   = 1000
)

// Interval contains 95 % of the resamples.
type Interval struct{ Low, High float64 }

// difference estimates how certain the difference of the shares of good answers is. It draws plays anew,
// because a play with another seed may end otherwise. From each drawn play it draws blocks of successive
// windows, the same blocks for both policies, until the number of windows is reached. Successive requests
// share a queue; drawing them one by one would treat them as independent.
func difference(plays []pairing) (in Interval, known bool) {
	if len(plays) == 0 {
		return in, false
	}
	rnd := rand.New(rand.NewPCG(uint64(len(plays)), 0x626c6f63))
	drawn := make([]float64, resamples)
	for i := range drawn {
		var a, b counted
		for range plays {
			p := plays[rnd.IntN(len(plays))]
			n := max(len(p.a.Asked), len(p.b.Asked))
			for left := n; left > 0; left -= blockLength {
				start := rnd.IntN(n)
				for k := range min(blockLength, left) { // wraps at the end, so that all windows are drawn equally often
					a.add(&p.a, (start+k)%n)
					b.add(&p.b, (start+k)%n)
				}
			}
		}
		drawn[i] = a.share() - b.share()
	}
	slices.Sort(drawn)
	return Interval{drawn[resamples/40], drawn[resamples-1-resamples/40]}, true
}

// counted adds windows up.
type counted struct{ asked, good int }

func (c *counted) add(w *Windows, at int) {
	if at < len(w.Asked) {
		c.asked += w.Asked[at]
		c.good += w.Usual[at]
	}
}

func (c *counted) share() float64 { return float64(c.good) / float64(max(c.asked, 1)) }

// median of some numbers; of an even count the mean of the two in the middle.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// recordingWindow is the offset within a recording at which the play of a seed begins: the first at the
// beginning, the second at the end, the third in the middle.
func recordingWindow(number int, free time.Duration) time.Duration {
	if number < 2 || free <= 0 {
		return 0
	}
	return time.Duration(float64(free) * [...]float64{1, 0.5, 0.25, 0.75}[(number-2)%4])
}
