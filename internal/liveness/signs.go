package liveness

import (
	"cmp"
	"sync"
	"time"
)

// Signs is when an engine gave signs of life, and how long it gave none. Times are those of [Clock.Running]:
// time in which this process stood still does not count. Safe for concurrent use.
type Signs struct {
	mu      sync.Mutex    // guards the following
	usual   time.Duration // the longest pause between two signs that means nothing
	next    time.Duration // what that is from the next sign on, 0 for no change
	last    time.Duration
	stalled time.Duration // the sum of unusual pauses
}

// NewSigns returns the signs of an engine for which pauses up to usual mean nothing.
func NewSigns(usual time.Duration) *Signs { return &Signs{usual: usual} }

// Note notes a sign of life.
func (s *Signs) Note(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled += s.pause(now)
	s.last = max(s.last, now)
	s.usual, s.next = cmp.Or(s.next, s.usual), 0
}

// SetUsual says how long pauses may be that mean nothing. A shorter time holds for pauses that begin from now
// on.
func (s *Signs) SetUsual(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usual, s.next = max(s.usual, d), d
}

// Usual is the longest pause that means nothing.
func (s *Signs) Usual() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usual
}

// Silence is the time since the last sign.
func (s *Signs) Silence(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now - s.last
}

// StalledFor is the sum of all unusual pauses, one that lasts included. The difference of two calls bounds
// how long the engine stood still between them.
func (s *Signs) StalledFor(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled + s.pause(now)
}

// pause is the pause that lasts, 0 where it means nothing. It needs mu.
func (s *Signs) pause(now time.Duration) time.Duration {
	if d := now - s.last; d > s.usual {
		return d
	}
	return 0
}
