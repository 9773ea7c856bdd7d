package core

import (
	"cmp"
	"slices"
	"time"
)

// lease keeps a finished prefill's blocks for the peer and says where they are.
func (e *Engine) lease(at time.Duration, r *request) *TransferOut {
	r.state = leased
	r.ended = at
	r.expiry = at + e.cfg.Lease
	if e.leases == 0 || r.expiry < e.leaseMin {
		e.leaseMin = r.expiry
	}
	e.leases++
	e.held[r.id] = r
	r.out = TransferOut{
		BlockIDs: r.table[:e.blocksFor(r.computed)], EngineID: e.EngineID(), RequestID: r.id,
		Host: e.cfg.Host, Port: e.cfg.Port, NumTokens: r.computed, Cached: -1,
	}
	if len(r.tokens) == r.prompt+1 {
		r.out.Cached = r.hit
	}
	return &r.out
}

// unlease frees a leased request's blocks.
func (e *Engine) unlease(r *request) {
	delete(e.held, r.id)
	e.leases--
	e.drop(r)
}

// expire frees the blocks of leases that ended. Nobody is told: that is the second mistake.
func (e *Engine) expire(now time.Duration) {
	if e.leases == 0 || now < e.leaseMin {
		return
	}
	var over []*request
	first := time.Duration(-1)
	for _, r := range e.held {
		switch {
		case r.state != leased:
		case r.expiry <= now:
			over = append(over, r)
		case first < 0 || r.expiry < first:
			first = r.expiry
		}
	}
	e.leaseMin = first
	slices.SortFunc(over,
		func(a, b *request) int { return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.seq, b.seq)) })
	for _, r := range over {
		e.counts.NixlExpired++
		e.unlease(r)
	}
}

// Notify is a peer's word that it has read, or does not want, the blocks of a request: its lease ends. For a
// request that holds none, the word is only counted: the peer may have read somebody else's KV, and nobody
// will know.
func (e *Engine) Notify(now time.Duration, requestID string) {
	if e.dead != nil {
		return
	}
	e.expire(now)
	if r := e.held[requestID]; r != nil && r.state == leased {
		e.unlease(r)
		return
	}
	if e.reqs[requestID] == nil {
		e.unheard++
	}
}

// hear counts the late words of peers. An engine takes them in when it steps, and one that has nothing to do
// and no lease to watch does not.
func (e *Engine) hear() {
	if !e.step.Idle || e.leases > 0 {
		e.counts.NixlNotifiedLate += e.unheard
		e.unheard = 0
	}
}

// Heartbeat renews leases: each lasts at least two thirds of Config.Lease from now.
func (e *Engine) Heartbeat(now time.Duration, requestIDs []string) {
	if e.dead != nil {
		return
	}
	e.expire(now)
	for _, id := range requestIDs {
		if r := e.held[id]; r != nil && r.state == leased {
			r.expiry = max(r.expiry, now+e.cfg.Lease*2/3)
		}
	}
}

// ReadBlocks gives the contents of blocks as they are at this moment, whoever holds them: nobody checks a
// lease. Ids beyond the pool read another layer's memory; ids beyond the last layer give nil, and the read
// has failed. So it has when the engine is dead.
func (e *Engine) ReadBlocks(ids []int) []uint64 {
	if e.dead != nil {
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
