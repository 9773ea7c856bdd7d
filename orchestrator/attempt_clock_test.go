package orchestrator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The phases of an attempt follow one another on one timer, and none ends the attempt but the one that takes
// too long, for its own reason.
func TestAttemptClock(t *testing.T) {
	for name, c := range map[string]struct {
		first, second time.Duration // that the phases take, of 10 s and 20 s
		want          error
		after         time.Duration
	}{
		"in time":         {9 * time.Second, 19 * time.Second, nil, 0},
		"the first late":  {11 * time.Second, time.Second, errPhaseTimeout, 10 * time.Second},
		"the second late": {9 * time.Second, 21 * time.Second, errAnswerLate, 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				var ended atomic.Int64
				context.AfterFunc(ctx, func() { ended.Store(int64(time.Since(began))) })
				clock := attemptClock{cancel: cancel}
				if !clock.stop() {
					t.Error("it was late before it began")
				}
				clock.start(10*time.Second, errPhaseTimeout)
				time.Sleep(c.first)
				clock.stop()
				clock.start(20*time.Second, errAnswerLate)
				time.Sleep(c.second)
				if inTime := clock.stop(); inTime != (c.want == nil) {
					t.Errorf("in time: %v", inTime)
				}
				time.Sleep(time.Hour)
				after := time.Duration(ended.Load())
				if !errors.Is(context.Cause(ctx), c.want) || after != c.after {
					t.Errorf("the attempt ended after %v with %v, want %v after %v", after, context.Cause(ctx), c.want,
						c.after)
				}
			})
		})
	}
}
