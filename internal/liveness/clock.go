// Package liveness measures standing still: of this process, and of engines that give no sign of life; and
// ends what waits for one that gives none.
package liveness

import (
	"context"
	"sync"
	"time"
)

// Clock notices that this whole process stood still (SIGSTOP, a paused machine, a starved container).
//
// The age of transfer parameters is counted from the moment their answer reached us. If we stood still while
// the answer lay in the socket, that moment is later than the truth, and stale parameters would look fresh;
// vLLM would answer 200 with wrong text. So the time that this process stood still since the prefill leg was
// sent is added to the age.
//
// One goroutine runs it; any goroutine may read.
type Clock struct {
	began time.Time // immutable

	mu      sync.Mutex    // a gap must never be seen twice or not at all; guards the following
	ticked  time.Time     // last
	stalled time.Duration // how long the process stood still so far, counted by whole gaps
}

// A gap between two ticks that is longer than expected by more than the slack counts as standing still.
const (
	tick  = 250 * time.Millisecond
	slack = 750 * time.Millisecond
)

// NewClock returns a clock that begins now.
func NewClock(now time.Time) *Clock { return &Clock{began: now, ticked: now} }

// Run ticks until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			c.Tick(time.Now())
		}
	}
}

// Tick looks at the clock, and counts the time since the last look if it is too long.
func (c *Clock) Tick(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled += c.gap(now)
	c.ticked = now
}

// StalledFor returns how long the process has stood still in all until now. It includes the gap that no tick
// has counted yet. The difference of two calls bounds the time lost between them.
func (c *Clock) StalledFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stalled + c.gap(now)
}

// gap is the time stood still since the last tick, by the clock that saw more. When a machine is suspended,
// the monotonic clock stands still, and the wall clock does not. When the wall clock is merely set forward,
// the price is one prefill done again. The caller holds mu.
func (c *Clock) gap(now time.Time) time.Duration {
	gap := max(now.Sub(c.ticked), now.Round(0).Sub(c.ticked.Round(0)))
	if gap > tick+slack {
		return gap - tick
	}
	return 0
}

// Running is the time since the clock was made, less what the process stood still.
func (c *Clock) Running(now time.Time) time.Duration { return now.Sub(c.began) - c.StalledFor(now) }
