package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/outlier"
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

// giveUp ends the leg with this cause, unless its first byte has come.
func (l *lateRescue) giveUp(cancel context.CancelCauseFunc, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		cancel(cause)
	}
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

// openUncut opens the answer of a decode leg whose engine never frees its blocks if the leg is cut while it
// waits for P: see [connector.Traits.CutLeaks]. Nothing shows whether a leg waits. So the leg outlives its
// client until its first content has come, but at most for timeouts.decode_first.
func openUncut(ctx context.Context, h *handoff, a *answer, out *outgoing) *failure {
	h.clock.grace.keep(time.Now().Add(h.cfg().Timeouts.DecodeFirst))
	lost := lostLater(h)
	f := a.open(out.made(a.spanCtx, h.j))
	lost.stop()
	switch h.clock.answered(); {
	case f != nil && h.sent(f):
		h.j.m.Handoffs.Rescues.WithLabelValues("leaked").Inc()
		h.j.log.Warn("a decode replica may keep blocks until it is restarted: its leg ended while it may have "+
			"waited for them", "prefill", string(h.b.Prefill.ID), "decode", string(h.b.Decode.ID))
	case f == nil && ctx.Err() != nil: // the client has left meanwhile
		return a.failed(ctx.Err())
	}
	return f
}

// lostLater ends the leg when its first byte is late and the prefill engine is gone, or another process: it
// will write nothing. The caller stops it.
func lostLater(h *handoff) *lateRescue {
	l, e := new(lateRescue), h.j.env
	to, before := h.endpoints[0].Endpoint, h.prefillLeg.leaseCounters
	cfg, cancel := h.cfg(), h.clock.cancel
	late := firstByteBy(cfg)
	lost := &stuck{outlier.Pair{Prefill: h.b.Prefill.ID, Decode: h.b.Decode.ID}, late}
	l.timer = time.AfterFunc(late, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.over || to == nil || !to.Hold() {
			return
		}
		e.giveBacks.running.Go(func() { // joined by Run, ended by a timeout
			defer to.Release()
			e.panics.Contain("lost leg", func() {
				_, err := askLeaseCounters(context.Background(), cfg, to, before)
				if errors.Is(err, errOtherProcess) || !to.Up() {
					l.giveUp(cancel, lost)
				}
			})
		})
	})
	return l
}
