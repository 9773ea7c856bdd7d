package policies

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// The rule takes a replica with headroom before a replica without headroom. Among replicas with headroom it
// takes the replica with the least or the most headroom. It takes no replica where a running request would
// then miss its goal.
func TestByGoals(t *testing.T) {
	speed := estimate.Speed{T0: 0.01, A: 1e-4, D0: 0.01, D1: 1e-3}
	strict := &cluster.Query{Class: &cluster.Class{TPOT: 20 * time.Millisecond}}
	for _, c := range []struct {
		name     string
		most     float64
		tpot     time.Duration
		requests [3]int
		runs     int // replica with a request of 20 ms, -1 none
		matched  [3]int
		want     int
	}{
		{"least", 0, 20 * time.Millisecond, [3]int{1, 6, 20}, -1, [3]int{}, 1},
		{"most", 1, 20 * time.Millisecond, [3]int{1, 6, 20}, -1, [3]int{}, 0},
		{"smallest deficit", 0, 20 * time.Millisecond, [3]int{30, 25, 40}, -1, [3]int{}, 1},
		{"a far goal fills", 0, 200 * time.Millisecond, [3]int{1, 6, 20}, -1, [3]int{}, 2},
		{"not beside a near one", 0, 200 * time.Millisecond, [3]int{1, 6, 20}, 2, [3]int{}, 1},
		{"cache", 0, 20 * time.Millisecond, [3]int{1, 6, 30}, -1, [3]int{0, 0, 900}, 2},
	} {
		x := defaultByGoals()
		x.most = c.most
		q := &Query{Tokens: 1000, TTFT: time.Second, TPOT: c.tpot, Rand: rand.New(rand.NewPCG(1, 1))}
		ds := make([]Replica, 3)
		for i := range ds {
			ds[i] = Replica{Speed: speed, Requests: c.requests[i], Matched: c.matched[i]}
		}
		if c.runs >= 0 {
			ds[c.runs].promise(strict, 1)
		}
		ps := []Replica{{Speed: speed}, {Speed: speed, Work: 2 * time.Second}}
		if p, d := x.Pick(q, ps, ds); p != 0 || d != c.want {
			t.Errorf("%s: p%d and d%d, want p0 and d%d", c.name, p, d, c.want)
		}
		if c.runs >= 0 {
			ds[c.runs].promise(strict, -1)
			if _, d := x.Pick(q, ps, ds); d != 2 {
				t.Errorf("%s: d%d behind the end of the request, want d2", c.name, d)
			}
		}
	}
}
