package orchestrator

import (
	"context"
	"errors"
	"time"
)

// lingering is how long a prefill leg goes on after its client has left.
//
// A prefill engine that is cut off while it computes frees its blocks. One that has just finished keeps them for its whole lease, and only its answer,
// which is on its way, could give them back. From outside the two look alike, so the answer is waited for, for a while.
const lingering = 250 * time.Millisecond

// linger returns a context that ends d after ctx has, or with it when that ends because a phase took too long. stop must be called.
func linger(ctx context.Context, d time.Duration) (own context.Context, stop func()) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ended by the function below, or by stop
	unhook := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if !errors.Is(cause, errPhaseTimeout) {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
			case <-own.Done():
			}
		}
		cancel(cause)
	})
	return own, func() {
		unhook()
		cancel(nil)
	}
}
