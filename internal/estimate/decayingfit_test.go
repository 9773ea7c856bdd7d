package estimate

import (
	"math"
	"testing"
	"time"
)

func TestMemoryEasesTowardThePool(t *testing.T) {
	parts := [3]float64{1, 0, 0}
	var pool SpeedFit
	var slow DecayingFit
	t0 := time.Unix(1000, 0)
	for i := range 20 {
		pool.Learn(parts, 1)
		slow.LearnAt(Took(PromptTime, parts, 50, t0.Add(time.Duration(i-19)*time.Second)))
	}
	at := func(d time.Duration) float64 {
		slow.Ease(&pool, t0.Add(d))
		return slow.at(0)
	}
	own := slow.at(0)
	if own < 40 {
		t.Fatalf("learned factor %v, want about 50", own)
	}
	if got := at(9 * time.Second); got != own {
		t.Errorf("after 9 s: %v, want it kept at %v", got, own)
	}
	if got, want := at(30*time.Second), math.Sqrt(own*pool.at(0)); math.Abs(got/want-1) > 0.01 {
		t.Errorf("one half-life on: %v, want the geometric middle %v", got, want)
	}
	if got := at(5 * time.Minute); got > 1.1*pool.at(0) {
		t.Errorf("after five minutes: %v, want the pool's %v", got, pool.at(0))
	}
	slow.LearnAt(Took(PromptTime, parts, 1, t0.Add(5*time.Minute)))
	before := slow.at(0)
	if got := at(5*time.Minute + time.Second); got != before {
		t.Errorf("a fresh sample is not kept: %v, then %v", before, got)
	}
}

func TestMemoryThatWasNeverTaughtStaysUnknown(t *testing.T) {
	var pool SpeedFit
	for range 5 {
		pool.Learn([3]float64{1, 0, 0}, 3)
	}
	var m DecayingFit
	m.Ease(&pool, time.Unix(1e6, 0))
	if m.Known() || m.at(0) != 1 {
		t.Errorf("known %v, factor %v; want an untouched memory", m.Known(), m.at(0))
	}
}
