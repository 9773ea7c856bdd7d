package orchestrator

import (
	"context"
	"sync"
	"time"
)

// stallWatch notices that this whole process stood still (SIGSTOP, a paused machine, a starved container).
//
// The age of transfer parameters is counted from the moment their answer reached us. If we stood still while the answer lay in the socket,
// that moment is later than the truth, and stale parameters would look fresh; vLLM would answer 200 with wrong text. So the time stood still
// since the prefill leg was sent is added to the age.
//
// One goroutine runs it; any goroutine may read.
type stallWatch struct {
	began time.Time // immutable

	mu    sync.Mutex    // a gap must never be seen twice or not at all; guards the following
	beat  time.Time     // last tick
	total time.Duration // stood still so far, counted by whole gaps
}

// stallTick is how often the watch looks at the clock; a gap this much longer than expected counts as standing still.
const (
	stallTick  = 250 * time.Millisecond
	stallSlack = 750 * time.Millisecond
)

func newStallWatch(now time.Time) *stallWatch { return &stallWatch{began: now, beat: now} }

// run ticks until ctx ends.
func (s *stallWatch) run(ctx context.Context) {
	t := time.NewTicker(stallTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.tick(time.Now())
		}
	}
}

func (s *stallWatch) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += s.gap(now)
	s.beat = now
}

// stood returns how long the process has stood still in all until now, the gap that nobody has ticked off yet included.
// The difference of two calls bounds the time lost between them.
func (s *stallWatch) stood(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total + s.gap(now)
}

// gap is the time stood still since the last tick, by the clock that saw more of it: the monotonic one stands still with a machine that is suspended,
// the wall clock does not; when that is merely set forward, the price is one prefill done again. It needs mu.
func (s *stallWatch) gap(now time.Time) time.Duration {
	gap := max(now.Sub(s.beat), now.Round(0).Sub(s.beat.Round(0)))
	if gap > stallTick+stallSlack {
		return gap - stallTick
	}
	return 0
}

// lived is the time since the watch was made, without what the process stood still.
func (s *stallWatch) lived(now time.Time) time.Duration { return now.Sub(s.began) - s.stood(now) }
