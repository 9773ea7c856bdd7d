package discovery

import (
	"context"
	"sync"

	"github.com/tandem-router/tandem/internal/panics"
)

// Runner runs the goroutines of a source, as long as the source runs. A mutex of the source guards it; only
// [Runner.Run] locks this mutex itself.
type Runner struct {
	Panics  panics.Guard
	Changed func() // tells the set of a change; nil before Run
	ctx     context.Context
	wg      sync.WaitGroup
}

// Run is [Source.Run]: it calls start with mu held, and then waits until ctx and all goroutines have ended.
func (r *Runner) Run(ctx context.Context, mu sync.Locker, changed, start func()) {
	mu.Lock()
	r.ctx, r.Changed = ctx, changed
	start()
	mu.Unlock()
	<-ctx.Done()
	mu.Lock()
	r.ctx = nil // a later reload starts nothing
	mu.Unlock()
	r.wg.Wait()
}

// Start runs follow on a goroutine until stop is called or the source ends. Before Run and after the end it
// starts nothing, and stop is nil.
func (r *Runner) Start(where string, follow func(ctx context.Context)) (stop context.CancelFunc) {
	if r.ctx == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.wg.Go(func() { r.Panics.KeepRunning(ctx, where, func() { follow(ctx) }) })
	return cancel
}
