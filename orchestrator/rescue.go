package orchestrator

import (
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// This file frees blocks of decode engines whose leg waits for blocks that will not come. A decode engine
// keeps the blocks of such a leg for ever, even after the leg was cut. Only the usage of its KV cache shows
// these blocks. The prefill engine frees them: after any prefill leg with the id of the decode leg, it writes
// into the blocks. See [connector.Traits.Rescue].

// lateRescue rescues a decode leg whose first byte is late. Nothing shows whether the leg waits for blocks.
// If it does, the rescue brings the blocks of its prompt, and the leg continues. If they cannot come any
// more, the attempt ends.
type lateRescue struct {
	timer *time.Timer // nil: no rescue is needed

	mu   sync.Mutex
	over bool // the first byte has come, or will not come
}

// firstByteBy returns how long a decode leg may wait before it is rescued. If a leg waits in an engine's
// queue for longer, the rescue costs a prefill from the cache.
func firstByteBy(cfg *config.Config) time.Duration {
	return min(cfg.Connector.Lease, cfg.Timeouts.DecodeFirst/2)
}

// stop ends the wait. After its return nothing of the request is read.
func (l *lateRescue) stop() {
	if l.timer == nil || l.timer.Stop() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
