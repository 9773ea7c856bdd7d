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

// An attempt ends with its request: at once, but for the answer of a prefill, and then when that has come.
func TestAttemptEndsWithItsRequest(t *testing.T) {
	gone := errors.New("the client left")
	expects := func(c *attemptClock) { c.grace.expect(time.Now()) }
	for name, c := range map[string]struct {
		early    bool // the request has ended before the attempt begins
		phase    func(c *attemptClock)
		answered time.Duration // after the client has left, 0 never
		want     time.Duration
	}{
		"before it begins":       {true, func(*attemptClock) {}, 0, 0},
		"in the decode leg":      {false, func(*attemptClock) {}, 0, 0},
		"behind the prefill leg": {false, func(c *attemptClock) { expects(c); c.answered() }, 0, 0},
		"in the prefill leg":     {false, expects, time.Second, time.Second},
		"in one that takes long": {false, expects, time.Hour, overdue},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancelCause(t.Context())
				if c.early {
					leave(gone)
				}
				var clock attemptClock
				own := clock.begin(ctx)
				defer clock.end()
				if c.phase(&clock); (own.Err() != nil) != c.early {
					t.Fatalf("it has ended before its request: %v", own.Err())
				}
				leave(gone)
				left := time.Now()
				if c.answered > 0 {
					time.AfterFunc(c.answered, clock.answered)
				}
				<-own.Done()
				if after := time.Since(left); after != c.want || !errors.Is(context.Cause(own), gone) {
					t.Errorf("it ended %v after its request with %v, want %v", after, context.Cause(own), c.want)
				}
			})
		})
	}
}

// An attempt that is over does not hang on its request any more.
func TestAttemptLetsGoOfItsRequest(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	var clock attemptClock
	clock.end() // harmless before
	own := clock.begin(ctx)
	clock.end()
	clock.end()
	if !errors.Is(context.Cause(own), context.Canceled) {
		t.Errorf("it ended with %v", context.Cause(own))
	}
	leave(errors.New("the client left"))
	if clock.unhook() {
		t.Error("it would still have heard of its request")
	}
}
