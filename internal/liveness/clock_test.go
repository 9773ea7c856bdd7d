package liveness

import (
	"sync"
	"testing"
	"time"
)

func TestClockCountsWhatItMissed(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := NewClock(start)
	for ms := 250; ms <= 5000; ms += 250 {
		s.Tick(at(ms))
	}
	for _, row := range []struct {
		ms   int
		want time.Duration
		why  string
	}{
		{5100, 0, "between two ticks"},
		{5990, 0, "a late tick"},
		{25000, 20*time.Second - tick, "20 s without a tick, before the watch has noticed"},
	} {
		if got := s.StalledFor(at(row.ms)); got != row.want {
			t.Errorf("%s: stood still for %v, want %v", row.why, got, row.want)
		}
	}
	s.Tick(at(25000))
	s.Tick(at(25250))
	if got := s.StalledFor(at(25300)); got != 20*time.Second-tick {
		t.Errorf("after the watch has noticed: %v, want as much as before", got)
	}
}

// The sum of stops never decreases: otherwise params would look younger than they are.
func TestClockNeverGoesBack(t *testing.T) {
	start := time.Now()
	s := NewClock(start)
	now := start.Add(time.Minute) // all goroutines see the same clock after a stop
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := time.Duration(0)
			for range 10000 {
				got := s.StalledFor(now)
				if got < last || got > time.Minute {
					t.Errorf("stood still for %v after %v", got, last)
					return
				}
				last = got
			}
		})
	}
	for range 1000 {
		s.Tick(now)
	}
	wg.Wait()
}

// A suspended machine stops the monotonic clock. The wall clock shows the stop.
func TestClockBelievesTheWallClockToo(t *testing.T) {
	start := time.Now()
	s := NewClock(start)
	s.ticked = start.Add(-20 * time.Second).Round(0) // no monotonic reading: only the walls differ
	if got := s.StalledFor(start); got < 19*time.Second {
		t.Errorf("stood %v, want about 20 s", got)
	}
}

// Usual pauses between signs of life do not count. Longer pauses count whole, even while they last.
func TestUnusualPausesCount(t *testing.T) {
	p := NewSigns(3 * time.Second)
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
		if silence, stood := p.Silence(c.at), p.StalledFor(c.at); silence != c.silence || stood != c.stood {
			t.Errorf("at %v: silent for %v, stood still for %v; want %v and %v",
				c.at, silence, stood, c.silence, c.stood)
		}
		if c.beat {
			p.Note(c.at)
		}
	}
}

// While this process is stopped it gets no signs of life, so the clock for signs does not move.
func TestRunningLeavesOutStandingStill(t *testing.T) {
	began := time.Now()
	s := NewClock(began)
	s.Tick(began.Add(tick))
	before := s.Running(began.Add(tick))
	if after := s.Running(began.Add(tick + time.Minute)); after-before > tick {
		t.Errorf("a minute of standing still counts for %v", after-before)
	}
}

// A gap counts the same before and after the tick that records it.
func TestAGapCountsOnce(t *testing.T) {
	t0 := time.Unix(1000, 0)
	s := NewClock(t0)
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for d := tick; d <= 2*time.Second; d += tick {
		s.Tick(at(d))
	}
	if got := s.StalledFor(at(2100 * time.Millisecond)); got != 0 {
		t.Fatalf("stalled for %v while ticking, want 0", got)
	}
	frozen := at(22 * time.Second)
	before := s.StalledFor(at(2100 * time.Millisecond))
	if got := s.StalledFor(frozen) - before; got < 19*time.Second || got > 20*time.Second {
		t.Errorf("a freeze nobody ticked off: %v, want about 19.75 s", got)
	}
	s.Tick(frozen)
	if got := s.StalledFor(frozen.Add(time.Millisecond)) - before; got < 19*time.Second || got > 20*time.Second {
		t.Errorf("the same after the tick: %v, want about 19.75 s", got)
	}
}
