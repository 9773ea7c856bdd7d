package liveness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// looks is a condition that holds after some looks. It records the times of the looks.
type looks struct {
	began time.Time
	every time.Duration
	finds int // at which look, 0 never
	at    []time.Duration
}

var errFound = errors.New("found")

func (l *looks) Look() (time.Duration, error) {
	if l.at = append(l.at, time.Since(l.began)); len(l.at) == l.finds {
		return 0, errFound
	}
	return l.every, nil
}

// A watchdog watches one condition after the other. It looks only at the condition that it watches, and only
// when the time has come.
func TestWatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watchdog
		w.Stop() // does nothing before the first Watch
		ctx, end := context.WithCancelCause(t.Context())
		first := &looks{began: time.Now(), every: time.Second}
		w.Watch(3*time.Second, end, first)
		time.Sleep(4500 * time.Millisecond)
		w.Stop()
		w.Stop()
		time.Sleep(time.Minute)
		if n := len(first.at); n != 2 {
			t.Errorf("it looked %d times, want 2", n)
		}

		w.Watch(time.Second, end, first) // and then at something else, which is later
		time.Sleep(time.Second)          // it is due now
		second := &looks{began: time.Now(), every: time.Second, finds: 2}
		w.Watch(5*time.Second, end, second)
		time.Sleep(time.Minute)
		w.Stop()
		if n := len(second.at); n != 2 || second.at[0] != 5*time.Second || second.at[1] != 6*time.Second {
			t.Errorf("it looked after %v, want 5s and 6s", second.at)
		}
		if !errors.Is(context.Cause(ctx), errFound) {
			t.Errorf("what waited ended with %v", context.Cause(ctx))
		}
	})
}
