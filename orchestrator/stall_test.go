package orchestrator

import (
	"sync"
	"testing"
	"time"
)

func TestStallWatchCountsWhatItMissed(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := newStallWatch(start)
	for ms := 250; ms <= 5000; ms += 250 {
		s.tick(at(ms))
	}
	for _, row := range []struct {
		ms   int
		want time.Duration
		why  string
	}{
		{5100, 0, "between two ticks"},
		{5990, 0, "a late tick"},
		{25000, 20*time.Second - stallTick, "20 s without a tick, before the watch has noticed"},
	} {
		if got := s.stood(at(row.ms)); got != row.want {
			t.Errorf("%s: stood still for %v, want %v", row.why, got, row.want)
		}
	}
	s.tick(at(25000))
	s.tick(at(25250))
	if got := s.stood(at(25300)); got != 20*time.Second-stallTick {
		t.Errorf("after the watch has noticed: %v, want as much as before", got)
	}
}

// What has been stood still never seems less than before: params would look younger than they are.
func TestStallWatchNeverGoesBack(t *testing.T) {
	start := time.Now()
	s := newStallWatch(start)
	now := start.Add(time.Minute) // everybody sees the same clock after a stall
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := time.Duration(0)
			for range 10000 {
				got := s.stood(now)
				if got < last || got > time.Minute {
					t.Errorf("stood still for %v after %v", got, last)
					return
				}
				last = got
			}
		})
	}
	for range 1000 {
		s.tick(now)
	}
	wg.Wait()
}

// A suspended machine stops the monotonic clock; the wall clock tells.
func TestStallWatchBelievesTheWallClockToo(t *testing.T) {
	start := time.Now()
	s := newStallWatch(start)
	s.beat = start.Add(-20 * time.Second).Round(0) // no monotonic reading: only the walls differ
	if got := s.stood(start); got < 19*time.Second {
		t.Errorf("stood %v, want about 20 s", got)
	}
}
