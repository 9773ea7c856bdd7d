package orchestrator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The phases of an attempt share one timer. Only a phase that takes too long ends the attempt, with the
// cause of that phase.
func TestAttemptClock(t *testing.T) {
	for name, c := range map[string]struct {
		first, second time.Duration // how long the phases take; their limits are 10 s and 20 s
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
					t.Error("stop reported a timeout before the clock started")
				}
				clock.start(10*time.Second, errPhaseTimeout)
				time.Sleep(c.first)
				clock.stop()
				clock.start(20*time.Second, errAnswerLate)
				time.Sleep(c.second)
				if inTime := clock.stop(); inTime != (c.want == nil) {
					t.Errorf("in time: %v, want the opposite", inTime)
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

// An attempt ends together with its request. During a prefill leg it waits for the prefill engine's answer
// first, but not for ever.
func TestAttemptEndsWithItsRequest(t *testing.T) {
	gone := errors.New("the client left")
	expects := func(c *attemptClock) { c.grace.expect(time.Now()) }
	for name, c := range map[string]struct {
		early    bool // the request has ended before the attempt begins
		phase    func(c *attemptClock)
		answered time.Duration // time from the client's departure to the prefill engine's answer; 0 means never
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
					t.Fatalf("the attempt ended before its request: %v", own.Err())
				}
				leave(gone)
				left := time.Now()
				if c.answered > 0 {
					time.AfterFunc(c.answered, clock.answered)
				}
				<-own.Done()
				if after := time.Since(left); after != c.want || !errors.Is(context.Cause(own), gone) {
					t.Errorf("the attempt ended %v after its request with %v, want %v", after, context.Cause(own), c.want)
				}
			})
		})
	}
}

// An attempt that has ended no longer hears of the end of its request.
func TestAttemptLetsGoOfItsRequest(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	var clock attemptClock
	clock.end() // harmless before
	own := clock.begin(ctx)
	clock.end()
	clock.end()
	if !errors.Is(context.Cause(own), context.Canceled) {
		t.Errorf("the attempt ended with %v", context.Cause(own))
	}
	leave(errors.New("the client left"))
	if clock.unhook() {
		t.Error("the attempt was still registered with its request")
	}
}
