package orchestrator

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// This file frees blocks of decode engines whose leg waits for blocks that will not come. A decode engine
// keeps the blocks of such a leg for ever, also when the leg has been cut, and no other series than the usage
// of its KV cache shows them. The prefill engine frees them: it writes into them after any prefill leg with
// the id of the decode leg. See [connector.Traits.Rescue].

// prefillAgain sends leg and returns the result for metrics.
func prefillAgain(ctx context.Context, to *fleet.Endpoint, leg *engine.Request) string {
	resp, err := to.Do(ctx, leg)
	giveBuffer(leg.Body)
	if err != nil {
		return "failed"
	}
	defer resp.Close()
	if _, err = resp.ReadAll(1 << 20); err != nil || resp.Status != http.StatusOK {
		return "failed"
	}
	return "prefilled"
}

// lateRescue rescues a decode leg whose first byte is late: nothing tells whether it waits for blocks. If it
// does, it goes on with the blocks of its prompt then. If they cannot come any more, the attempt ends.
type lateRescue struct {
	timer *time.Timer // nil: nothing is to be rescued

	mu   sync.Mutex
	over bool // the first byte is there, or will not be
}

// firstByteBy is how long a decode leg may wait before it is rescued. What waits in an engine's queue for
// longer costs a prefill from the cache.
func firstByteBy(cfg *config.Config) time.Duration {
	return min(cfg.Connector.Lease, cfg.Timeouts.DecodeFirst/2)
}

// stop ends the wait. Nothing of the request is read any more when it returns.
func (l *lateRescue) stop() {
	if l.timer == nil || l.timer.Stop() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
