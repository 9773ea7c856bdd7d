package core

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file is the NIXL pull connector on D: how its scheduler half handles a request's kv_transfer_params.
// nixl_lease.go has the leases on P. Both reproduce vLLM 0.32.0, mistakes included.

// readbackMin is kv_recompute_threshold. A prefill leg whose params name all remote blocks promises to read
// at least this many tokens back, or none.
const readbackMin = 64

var errShortRead = errors.New("read returned a wrong number of blocks")

// LoadPolicy is vLLM's kv_load_failure_policy: what happens to a request whose remote KV could not be read.
type LoadPolicy uint8

// The policies. Fail is vLLM's default.
const (
	Fail      LoadPolicy = iota // the request ends with an error
	Recompute                   // the request prefills its prompt itself
)

// Set reads the policy from its name in vLLM.
func (p *LoadPolicy) Set(word string) error {
	switch word {
	case "fail":
		*p = Fail
	case "recompute":
		*p = Recompute
	default:
		return fmt.Errorf("%q: want fail or recompute", word)
	}
	return nil
}

// arrive notes a request whose KV is on a peer. From now on, heartbeats renew the lease there.
func (e *Engine) arrive(_ time.Duration, r *request) {
	t := r.load.transfer
	if t == nil || !bool(t.DoRemotePrefill) {
		return
	}
	r.load.remote = true
	if e.cfg.NoLoad {
		t.DoRemotePrefill = false
		return
	}
	e.loads.toStart++
	// Without tp_size the request never registers for heartbeats.
	if e.cfg.MoRIIO == 0 && t.address() && t.TPSize.Present && !t.TPSize.Null {
		r.load.beats = true
		e.leasing.beating++
	}
}

// hush stops the heartbeats for r.
func (e *leasing) hush(r *request) {
	if r.load.beats {
		r.load.beats = false
		e.beating--
	}
}

// promised returns the number of tokens that the connector says it will load behind the local cached ones
// (get_num_new_matched_tokens). Mistake of vLLM: it does not check whether it can load them.
func (e *Engine) promised(r *request, local int) int {
	t := r.load.transfer
	switch {
	case r.ask.skipRead:
		return 0
	case e.cfg.MoRIIO != 0:
		return e.promisedMoRIIO(r, local)
	case t == nil:
		return 0
	case bool(t.DoRemotePrefill):
		if e.notRole(Producer, r) {
			return 0
		}
		return max(0, r.fetched()-local)
	case !e.cfg.Push && !e.cfg.Mooncake && bool(t.DoRemoteDecode) && t.readback():
		n := r.text.prompt
		if t.NumTokens.Present && !t.NumTokens.Null {
			n = min(n, t.NumTokens.V)
		}
		if n-local >= readbackMin {
			return n - local
		}
	}
	return 0
}

// park makes r wait for its remote KV (update_state_after_alloc, start_load_kv). r's table is already
// allocated.
func (e *Engine) park(r *request) {
	t := r.load.transfer
	r.state = loading
	r.load.reads = len(r.blocks.table) - r.blocks.committed
	e.loads.loading = append(e.loads.loading, r)
	if e.cfg.MoRIIO != 0 {
		e.loadMoRIIO(r)
		return
	}
	switch {
	case !bool(t.DoRemotePrefill): // a prefill leg: no worker performs the promised load
		r.state = lost
		return
	case e.cfg.Mooncake:
		e.ask(r)
	case e.cfg.Push:
		e.register(r)
	case !t.blocks():
		e.life.die("schedule: update_state_after_alloc: assert num_external_tokens == 0 (do_remote_prefill "+
			"without remote_block_ids, request %s)", r.id)
		return
	case !t.address(): // only a warning in vLLM's log
		r.state = lost
		e.leasing.hush(r)
	default:
		e.read(r)
	}
	e.loads.started(r)
}

// started marks r's transfer as started; a request has only one.
func (e *remoteLoads) started(r *request) {
	r.load.transfer.DoRemotePrefill = false
	e.toStart--
}

// read orders the blocks that r lacks: the last ones of the peer's list. Mistakes of vLLM: with a list that
// is too long it reads wrong blocks, and with one that is too short the engine dies.
func (e *Engine) read(r *request) {
	t := r.load.transfer
	groups := t.RemoteBlocks.V.Groups
	switch {
	case e.misregistered(t):
		e.dieOfRegistration(r)
	case t.RemoteBlocks.V.Broken:
		e.life.die("worker: start_load_kv: TypeError: remote_block_ids is no list of lists (request %s)", r.id)
	case len(groups) != 1:
		e.life.die(
			"worker: start_load_kv: assert len(remote) == len(local) == len(transfer_groups): %d groups (request %s)",
			len(groups), r.id,
		)
	case len(groups[0]) < r.load.reads:
		e.life.die("worker: start_load_kv: assert num_decode_blocks <= len(prefill_group): %d <= %d (request %s)",
			r.load.reads, len(groups[0]), r.id)
	default:
		ids := groups[0][len(groups[0])-r.load.reads:]
		r.load.asked = e.turn.now
		into, ranks := r.blocks.table[len(r.blocks.table)-r.load.reads:], t.peer().Ranks
		r.load.descriptors = e.cfg.descriptors(into, ids, ranks)
		posts := r.load.descriptors * e.cfg.posts(ranks)
		r.load.posting = time.Duration(e.cfg.Cost.Post * float64(posts) * 1e9)
		e.turn.posting += r.load.posting
		e.turn.step.Orders = append(e.turn.step.Orders,
			Order{
				Kind: OrderRead, Peer: t.peer(), RequestID: r.id, RemoteIDs: []string{t.RequestID.V}, Blocks: ids,
				Registration: t.Registration.V, Posting: r.load.posting,
			})
	}
}

// runs returns the number of descriptors per layer. Blocks that are adjacent on both sides share a
// descriptor. In a used cache, hardly any blocks do.
func runs(ours []int32, theirs []int) (n int) {
	for i := range theirs {
		if i == 0 || ours[i] != ours[i-1]+1 || theirs[i] != theirs[i-1]+1 {
			n++
		}
	}
	return n
}

// misregistered reports whether the params have a null registration, which Python cannot compare with a
// number.
func (e *Engine) misregistered(t *Transfer) bool {
	return e.cfg.Registrations && t.Registration.Present && t.Registration.Null
}

func (e *Engine) dieOfRegistration(r *request) {
	e.life.die("worker: start_load_kv: TypeError: '<' not supported with remote_registration_generation "+
		"(request %s)", r.id)
}

// decline tells the peer that r, whose params name remote blocks, loads no blocks.
func (e *Engine) decline(r *request) {
	t := r.load.transfer
	if t == nil || !bool(t.DoRemotePrefill) {
		return
	}
	e.loads.started(r)
	e.leasing.hush(r)
	if e.cfg.MoRIIO != 0 {
		e.declineMoRIIO(r)
		return
	}
	if e.cfg.Mooncake {
		if t.meets() {
			e.turn.step.Orders = append(e.turn.step.Orders, askOrder(t))
		}
		return
	}
	if e.cfg.Push {
		return // P gets no notification and keeps its lease
	}
	if t.blocks() && t.address() && e.misregistered(t) {
		e.dieOfRegistration(r)
		return
	}
	if t.blocks() && t.address() {
		e.turn.step.Orders = append(e.turn.step.Orders, notification(t))
	}
}

func notification(t *Transfer) Order {
	return Order{Kind: OrderNotify, Peer: t.peer(), RemoteIDs: []string{t.RequestID.V}}
}

// Loaded ends the read of an OrderRead with the contents from the peer's ReadBlocks, or with the error. The
// request continues in the next Step.
func (e *Engine) Loaded(now time.Duration, id string, contents []uint64, err error) {
	if e.life.dead != nil {
		return
	}
	r := e.known.reqs[id]
	if r == nil {
		r = e.known.held[id]
	}
	if r == nil || r.state != loading && r.state != unread {
		return
	}
	if err == nil && len(contents) != r.load.reads {
		err = errShortRead
	}
	e.countRead(now, r, err)
	if r.state == unread {
		delete(e.known.held, id)
		e.drop(r)
		return
	}
	e.leasing.hush(r)
	r.state = loaded
	e.loads.arrived++
	if err != nil {
		e.loadFailed(r, err)
		return
	}
	for i, b := range r.blocks.table[len(r.blocks.table)-r.load.reads:] {
		e.pool.blocks[b].content = contents[i]
	}
}

func (e *Engine) countRead(now time.Duration, r *request, err error) {
	if err != nil {
		e.counted.counts.NixlFailed++
		return
	}
	if e.cfg.Push || e.cfg.Mooncake { // P counts the transfer
		return
	}
	e.counted.counts.NixlTransfers += uint64(e.cfg.TensorParallel * e.cfg.posts(r.load.transfer.peer().Ranks))
	e.counted.counts.NixlBlocks += uint64(r.load.reads)
	e.observeRead(now-r.load.asked, r)
}

func (e *Engine) loadFailed(r *request, err error) {
	r.load.failed = err
	if e.cfg.LoadPolicy == Fail {
		e.loads.failures++
	}
}

// failLoads ends the requests whose load failed, if the policy is Fail.
func (e *Engine) failLoads() {
	if e.loads.failures == 0 {
		return
	}
	e.loads.loading = slices.DeleteFunc(e.loads.loading, func(r *request) bool {
		if r.state != loaded || r.load.failed == nil {
			return false
		}
		e.turn.step.Outputs = append(e.turn.step.Outputs, Output{
			ID: r.id, Finished: true, Reason: FinishError, Prompt: r.text.prompt,
			Err: fmt.Errorf("KV load: %w", r.load.failed),
		})
		e.loads.arrived--
		e.counted.counts.Finished[FinishError]++
		delete(e.known.reqs, r.id)
		e.drop(r)
		return true
	})
	e.loads.failures = 0
}

// recompute puts a request whose load failed back into the queue, to prefill here.
func (e *Engine) recompute(r *request) {
	e.vacate(r)
	r.load.failed = nil
	r.cached.external = 0
	r.state = waiting
	e.queues.waiting.unshift(r)
}

// abortLoad ends a request that waits for remote KV. Its blocks stay held until the read ends, because the
// read may still write into them. A lost request has no read, so its blocks stay held for ever.
func (e *Engine) abortLoad(r *request) {
	e.loads.loading = slices.DeleteFunc(e.loads.loading, func(x *request) bool { return x == r })
	switch r.state {
	case lost:
		e.loads.leaked++
	case loading:
		if e.writes() {
			e.strand(r)
			return
		}
		r.state = unread
		e.known.held[r.id] = r
	case probing:
		e.drop(r)
	case loaded:
		e.loads.arrived--
		if r.load.failed != nil && e.loads.failures > 0 {
			e.loads.failures--
		}
		e.drop(r)
	}
}

// abandon aborts a queued request. If its load has not started, the peer is told to free its blocks.
func (e *Engine) abandon(r *request) {
	if r.load.transfer != nil && bool(r.load.transfer.DoRemotePrefill) {
		e.leasing.cleanups = append(e.leasing.cleanups, r.load.transfer)
		e.loads.toStart--
	}
}
