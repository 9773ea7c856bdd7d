package observe

import (
	"math"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// Answers of 100 tokens behind prompts of 950 come once a second. A token adds a millisecond to a step for
// the KV of its sequence. The demand is bounded by the longest step, by KV and by sequences, and it ends
// with the traffic.
func TestDemandOfKnownTraffic(t *testing.T) {
	s := estimate.Speed{D0: 0.01, D2: 1e-6}
	const own = 0.1 // seconds that sequences add in a second
	for _, c := range []struct {
		name   string
		of     usualReplica
		answer float64
	}{
		{"longest step", usualReplica{step: s}, own / 0.9},
		{"longest step, with room for more", usualReplica{s, 1e6, 1000}, own / 0.9},
		{"KV", usualReplica{s, 2000, 1000}, own + 0.01*100*1000/2000},
		{"sequences", usualReplica{s, 1e6, 2}, own + 0.01*100/2},
	} {
		var m Demand
		if got := m.replicas(c.of, time.Unix(1, 0)); got != 0 {
			t.Errorf("%s: %v replicas without traffic", c.name, got)
		}
		now := time.Unix(1000, 0)
		for range 1000 {
			now = now.Add(time.Second)
			m.Ended(950, 100, 1, now)
		}
		if got := m.replicas(c.of, now); math.Abs(got/c.answer-1) > 0.01 {
			t.Errorf("%s: %v replicas, want %v", c.name, got, c.answer)
		}
		if got := m.replicas(c.of, now.Add(10*time.Minute)); got > 0.02*c.answer {
			t.Errorf("%s: %v replicas ten minutes after the last answer", c.name, got)
		}
	}
}

// A request of several sequences counts as so many answers.
func TestDemandOfSequences(t *testing.T) {
	of, now := usualReplica{estimate.DefaultSpeed(), 100_000, 0}, time.Unix(1000, 0)
	var one, two Demand
	for range 100 {
		now = now.Add(time.Second)
		one.Ended(500, 40, 1, now)
		one.Ended(500, 40, 1, now)
		two.Ended(500, 80, 2, now)
	}
	if a, b := one.replicas(of, now), two.replicas(of, now); a == 0 || math.Abs(a/b-1) > 1e-9 {
		t.Errorf("%v and %v replicas", a, b)
	}
}
