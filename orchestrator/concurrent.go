package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// prefillBeside is a prefill leg that runs at the same time as the decode leg. If the prefill leg fails, the
// context of the decode leg ends.
type prefillBeside struct {
	cancel context.CancelFunc
	done   chan struct{}
	broke  crash

	mu     sync.Mutex
	failed *failure
}

// start starts the leg on its own goroutine, with this time limit. It returns the context of the decode leg.
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

// failure returns the failure of the leg; nil if it did not fail. If the leg panicked, failure panics.
func (p *prefillBeside) failure() *failure {
	p.broke.again()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// wait waits for the end of the leg, and returns its failure.
func (p *prefillBeside) wait() *failure {
	<-p.done
	return p.failure()
}

// ended reports whether the leg has ended. Then the results of the leg may be read.
func (p *prefillBeside) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end cancels the leg if it still runs, and waits for its end.
func (p *prefillBeside) end() {
	p.cancel()
	<-p.done
}

// errOtherLeg is the cause for which a decode leg ends after its prefill leg has failed.
var errOtherLeg = errors.New("the prefill leg failed")
