package orchestrator

import (
	"testing"
	"time"
)

// Usual pauses between signs of life are nothing; longer ones count whole, also while they last.
func TestPulse(t *testing.T) {
	p := pulse{usual: 3 * time.Second}
	for _, c := range []struct {
		beat           bool
		at             time.Duration
		silence, stood time.Duration // before the beat
	}{
		{true, 2 * time.Second, 2 * time.Second, 0},
		{true, 5 * time.Second, 3 * time.Second, 0},
		{false, 9 * time.Second, 4 * time.Second, 4 * time.Second},
		{true, 10 * time.Second, 5 * time.Second, 5 * time.Second},
		{false, 11 * time.Second, time.Second, 5 * time.Second},
		{true, 20 * time.Second, 10 * time.Second, 15 * time.Second},
		{false, 20 * time.Second, 0, 15 * time.Second},
	} {
		if silence, stood := p.silence(c.at), p.stood(c.at); silence != c.silence || stood != c.stood {
			t.Errorf("at %v: silent for %v, stood still for %v; want %v and %v", c.at, silence, stood, c.silence, c.stood)
		}
		if c.beat {
			p.beat(c.at)
		}
	}
}

// While we stand still ourselves we hear nobody: the clock that pulses are taken on does not move.
func TestLivedLeavesOutStandingStill(t *testing.T) {
	began := time.Now()
	s := newStallWatch(began)
	s.tick(began.Add(stallTick))
	before := s.lived(began.Add(stallTick))
	if after := s.lived(began.Add(stallTick + time.Minute)); after-before > stallTick {
		t.Errorf("a minute of standing still counts for %v", after-before)
	}
}
