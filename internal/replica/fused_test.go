package replica

import (
	"math"
	"testing"
	"time"
)

func TestFusedAgesEachValue(t *testing.T) {
	var f Fused
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	const ttl = 10 * time.Second
	if r := f.Read(at(0), ttl); r.Running != -1 || r.Waiting != -1 || !math.IsNaN(r.Usage) || r.Age != -1 {
		t.Errorf("nothing was reported, but %+v", r)
	}
	f.Add(Load{At: at(0), Source: Metrics, Running: 3, Waiting: 2, Usage: 0.5})
	f.Add(Load{At: at(8), Source: ORCA, Running: -1, Waiting: 1, Usage: 1.5})
	f.Add(Load{At: at(4), Source: Metrics, Running: 9, Waiting: 9, Usage: 0.9}) // late
	for _, tt := range []struct {
		now              int
		running, waiting int
		usage            float64
	}{
		{9, 9, 1, 1},
		{15, -1, 1, 1},
		{19, -1, -1, math.NaN()},
	} {
		r := f.Read(at(tt.now), ttl)
		known := r.Usage == tt.usage || math.IsNaN(r.Usage) && math.IsNaN(tt.usage)
		if r.Running != tt.running || r.Waiting != tt.waiting || !known {
			t.Errorf("at %d s: %+v, want running %d, waiting %d, usage %g",
				tt.now, r, tt.running, tt.waiting, tt.usage)
		}
	}
	if got := f.Read(at(9), ttl).Age; got != time.Second {
		t.Errorf("age %v, want 1s", got)
	}
}
