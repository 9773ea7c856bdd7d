package decode

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// One engine is slower, so it has fewer streams. This does not change the price of one more request on the
// others.
func TestOneSlowEngineMakesNobodyElseCheap(t *testing.T) {
	for _, streams := range [][]int{{80, 80, 80, 30}, {120, 140, 130, 60}, {200, 20}} {
		for _, slower := range []float64{1, 2} {
			t.Run(fmt.Sprintf("%v, the last %g times as slow", streams, slower), func(t *testing.T) {
				if got := marginalOfFirst(streams, slower); got < 0.4 || got > 1.6 {
					t.Errorf("one more on the first is taken to cost %.2f of what it does", got)
				}
			})
		}
	}
}

// marginalOfFirst returns the predicted cost of one more request on the first engine, divided by its real
// cost. The last engine is slower.
func marginalOfFirst(streams []int, slower float64) float64 {
	s := newStreams(len(streams), estimate.DefaultSpeed())
	s.e[len(s.e)-1].factor = slower
	sum, n := 0.0, 0.0
	s.run(2*time.Minute, func() {
		for i, e := range s.e {
			if len(e.streams) < streams[i]+int(s.now.Sub(start)/time.Second)%7 {
				s.send(i, 1000+(i*3+len(e.streams)*7)%40*20, 150, false)
			}
		}
		if s.now.Sub(start) < time.Minute {
			return
		}
		c, _, _ := s.p.Candidates(&Query{Model: "m", Tokens: 3000}, s.now, nil, nil)
		sum += c[0].Marginal / estimate.DefaultSpeed().Marginal(3000+int(c[0].answer)/2)
		n++
	})
	return sum / n
}
