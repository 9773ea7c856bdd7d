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
	if f.Running(at(0), ttl) != -1 || f.Waiting(at(0), ttl) != -1 || !math.IsNaN(f.Usage(at(0), ttl)) ||
		f.Age(at(0)) != -1 {
		t.Errorf("nothing was reported, but %+v", f)
	}
	f.Add(Load{At: at(0), Source: Metrics, Running: 3, Waiting: 2, Usage: 0.5})
	f.Add(Load{At: at(8), Source: ORCA, Running: -1, Waiting: 1, Usage: 1.5})
	// Late: older than what is known of two values.
	f.Add(Load{At: at(4), Source: Metrics, Running: 9, Waiting: 9, Usage: 0.9})
	for _, tt := range []struct {
		now              int
		running, waiting int
		usage            float64
	}{
		{9, 9, 1, 1},
		{15, -1, 1, 1},
		{19, -1, -1, math.NaN()},
	} {
		r, w, u := f.Running(at(tt.now), ttl), f.Waiting(at(tt.now), ttl), f.Usage(at(tt.now), ttl)
		if r != tt.running || w != tt.waiting || u != tt.usage && !(math.IsNaN(u) && math.IsNaN(tt.usage)) {
			t.Errorf("at %d s: running %d, waiting %d, usage %g, want %d, %d, %g",
				tt.now, r, w, u, tt.running, tt.waiting, tt.usage)
		}
	}
	if got := f.Age(at(9)); got != time.Second {
		t.Errorf("age %v, want 1s", got)
	}
}
