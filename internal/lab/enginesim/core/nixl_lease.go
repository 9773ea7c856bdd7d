package core

import (
	"cmp"
	"slices"
	"time"
)

// lease keeps a finished prefill's blocks for the peer and returns their location.
func (e *Engine) lease(at time.Duration, r *request) *TransferOut {
	r.state = leased
	r.lease.ended = at
	r.lease.expiry = at + e.cfg.Lease
	if e.leasing.leases == 0 || r.lease.expiry < e.leasing.leaseMin {
		e.leasing.leaseMin = r.lease.expiry
	}
	e.leasing.leases++
	e.known.held[r.id] = r
	r.lease.out = TransferOut{
		BlockIDs: r.blocks.table[:e.blocksFor(r.done.computed)], EngineID: e.EngineID(), RequestID: r.id,
		Host: e.cfg.Host, Port: e.cfg.Port, NumTokens: r.done.computed, Cached: -1,
		TPSize: e.cfg.TensorParallel,
	}
	if e.cfg.Registrations {
		r.lease.out.Registration = e.life.sleep.registration
	}
	if len(r.text.tokens) == r.text.prompt+1 {
		r.lease.out.Cached = r.cached.hit
	}
	if e.cfg.Push {
		r.lease.out.Push = true
		e.leasing.pushing.prefilled(r)
	}
	return &r.lease.out
}

// unlease frees a leased request's blocks.
func (e *Engine) unlease(r *request) {
	delete(e.known.held, r.id)
	e.leasing.leases--
	e.leasing.pushing.forget(r)
	e.leasing.mooncake.forget(r)
	e.leasing.moriio.forget(r)
	e.drop(r)
}

// expire frees the blocks of leases that ended. Mistake of vLLM: it does not tell the peer.
func (e *Engine) expire(now time.Duration) {
	if e.leasing.leases == 0 || now < e.leasing.leaseMin {
		return
	}
	var over []*request
	first := time.Duration(-1)
	for _, r := range e.known.held {
		switch {
		case r.state != leased:
		case r.lease.expiry <= now:
			over = append(over, r)
		case first < 0 || r.lease.expiry < first:
			first = r.lease.expiry
		}
	}
	e.leasing.leaseMin = first
	slices.SortFunc(over,
		func(a, b *request) int {
			return cmp.Or(cmp.Compare(a.lease.expiry, b.lease.expiry), cmp.Compare(a.seq, b.seq))
		})
	for _, r := range over {
		e.counted.counts.NixlExpired++
		e.unlease(r)
	}
}

// Notify is a peer's notification that it has read, or does not want, the blocks of a request. The lease
// ends. If the request has no lease, Notify only counts. The peer may have read another request's KV
// unnoticed.
func (e *Engine) Notify(now time.Duration, requestID string) {
	if e.life.dead != nil {
		return
	}
	e.expire(now)
	if e.cfg.MoRIIO != 0 {
		e.releaseTransfer(requestID)
		return
	}
	if r := e.known.held[requestID]; r != nil && r.state == leased {
		e.unlease(r)
		return
	}
	if e.known.reqs[requestID] == nil {
		e.counted.unheard++
	}
}

// hear counts late notifications. A real engine counts them in a step. Without work and leases it makes no
// steps.
func (e *Engine) hear() {
	if !e.turn.step.Idle || e.leasing.leases > 0 {
		e.counted.counts.NixlNotifiedLate += e.counted.unheard
		e.counted.unheard = 0
	}
}

// Heartbeat renews leases. Each lasts at least two thirds of Config.Lease from now.
func (e *Engine) Heartbeat(now time.Duration, requestIDs []string) {
	if e.life.dead != nil {
		return
	}
	e.expire(now)
	for _, id := range requestIDs {
		if r := e.known.held[id]; r != nil && r.state == leased {
			r.lease.expiry = max(r.lease.expiry, now+e.cfg.Lease*2/3)
		}
	}
}

// ReadBlocks returns the current contents of blocks, whichever request holds them: no lease is checked. Ids
// beyond the pool read another layer's memory. With an id beyond the last layer the read fails: it returns
// nil. It also fails while the engine is dead or asleep.
func (e *Engine) ReadBlocks(ids []int) []uint64 {
	if e.life.dead != nil || e.life.sleep.emptied && e.life.sleep.level > 0 {
		return nil
	}
	out := make([]uint64, len(ids))
	for i, id := range ids {
		layer := id / len(e.pool.blocks)
		if id < 0 || layer >= e.cfg.Layers {
			return nil
		}
		out[i] = e.pool.blocks[id%len(e.pool.blocks)].content
		if layer > 0 {
			out[i] = mix(out[i], uint64(layer))
		}
	}
	return out
}
