package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// prefillBeside is a prefill leg that runs while the decode leg does. Their fates are joined: when it fails,
// the decode leg's context ends.
type prefillBeside struct {
	cancel context.CancelFunc
	done   chan struct{}
	broke  crash

	mu     sync.Mutex
	failed *failure
}

// start starts the leg on a goroutine of its own, for so long, and returns the context of the decode leg.
func (p *prefillBeside) start(
	ctx context.Context, limit time.Duration, leg func(ctx context.Context) *failure,
) context.Context {
	own, cancel := context.WithTimeoutCause(ctx, limit, errPhaseTimeout)
	joined, fail := context.WithCancelCause(ctx)
	p.cancel, p.done = func() { cancel(); fail(nil) }, make(chan struct{})
	go func() { // joined by end
		defer close(p.done)
		var err error
		defer func() {
			if err != nil {
				fail(err)
			}
		}()
		defer p.broke.keep(&err)
		if f := leg(own); f != nil {
			p.mu.Lock()
			p.failed = f
			p.mu.Unlock()
			fail(errOtherLeg)
		}
	}()
	return joined
}

// failure tells how the leg failed, nil if it did not. It panics where the leg did.
func (p *prefillBeside) failure() *failure {
	p.broke.again()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// wait blocks until the leg has ended and tells whether it ended well.
func (p *prefillBeside) wait() *failure {
	<-p.done
	return p.failure()
}

// ended tells whether the leg has ended. What it wrote may be read from then on.
func (p *prefillBeside) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end cancels the leg if it still runs, and joins it.
func (p *prefillBeside) end() {
	p.cancel()
	<-p.done
}

// errOtherLeg ends a decode leg whose prefill leg has failed.
var errOtherLeg = errors.New("the prefill leg failed")
