package orchestrator

import (
	"context"
	"errors"
	"sync"

	"github.com/tandem-router/tandem/connector"
)

// prefillBeside is a prefill leg that runs while the decode leg does. Their fates are joined: when it fails,
// the decode leg's context ends.
type prefillBeside struct {
	cancel context.CancelFunc
	done   chan struct{}
	broke  crash

	mu   sync.Mutex
	fail *failure
}

// startBeside starts the prefill leg on its own goroutine and returns the context of the decode leg.
func (h *handoff) startBeside(ctx context.Context, con connector.Connector) context.Context {
	own, cancel := context.WithTimeoutCause(ctx, h.cfg().Timeouts.Prefill, errPhaseTimeout)
	joined, fail := context.WithCancelCause(ctx)
	p := &prefillBeside{cancel: func() { cancel(); fail(nil) }, done: make(chan struct{})}
	h.beside = p
	go func() { // joined by end
		defer close(p.done)
		var err error
		defer func() {
			if err != nil {
				fail(err)
			}
		}()
		defer p.broke.keep(&err)
		if _, f := h.prefill(own, con); f != nil {
			p.mu.Lock()
			p.fail = f
			p.mu.Unlock()
			fail(errOtherLeg)
			return
		}
		h.prefilled()
	}()
	return joined
}

// failure tells how the leg failed, nil if it did not. It panics where the leg did.
func (p *prefillBeside) failure() *failure {
	p.broke.again()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail
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
