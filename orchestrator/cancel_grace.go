package orchestrator

import (
	"context"
	"errors"
	"time"
)

// How long a prefill leg goes on after its client has left.
//
// A prefill engine that is cut off while it computes frees its blocks. One that has just finished keeps them
// for its whole lease, and only its answer, which is on its way, could give them back. From outside the two
// look alike. So the answer is waited for where it is due, by what the plan expected of the prefill, and for
// a moment where it is not: computing for nobody for seconds would cost more than a rare lease.
const (
	shortGrace = 250 * time.Millisecond
	nearlyDue  = 2 * time.Second // an answer that is expected within that is waited for
	overdue    = 2 * time.Second // and that much longer than it was expected
)

// grace is how long the answer of a prefill is waited for that is expected at due, once its client has left.
func grace(due, now time.Time) time.Duration {
	if left := due.Sub(now); left <= nearlyDue {
		return max(left, 0) + overdue
	}
	return shortGrace
}

// cancelGrace returns a context that ends after ctx has: as much later as the answer that is expected at due
// is worth, or with it when a phase took too long. giveUp ends it at once. stop must be called.
func cancelGrace(
	ctx context.Context, due time.Time,
) (own context.Context, giveUp context.CancelCauseFunc, stop func()) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ended by the function below, or by stop
	unhook := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if wait := graceFor(cause, due, time.Now()); wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case <-t.C:
			case <-own.Done():
			}
		}
		cancel(cause)
	})
	return own, cancel, func() {
		unhook()
		cancel(nil)
	}
}

// graceFor is how long a leg goes on whose request has ended for this cause. A router that stops keeps nobody
// waiting.
func graceFor(cause error, due, now time.Time) time.Duration {
	switch {
	case errors.Is(cause, errPhaseTimeout):
		return 0
	case errors.Is(cause, errStopped):
		return shortGrace
	}
	return grace(due, now)
}
