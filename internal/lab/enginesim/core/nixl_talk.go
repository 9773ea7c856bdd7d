package core

import "time"

// This file has the messages to peers that belong to no load: cleanups and heartbeats.

// NotifyFailed counts a notification that did not reach the peer. The peer's lease then expires. vLLM counts
// it as a failed transfer too.
func (e *Engine) NotifyFailed() {
	e.counted.counts.NixlFailed++
	e.counted.counts.NixlUnsaid++
}

// Reject handles the params of a request that the API layer refused. The next Step tells the peer to free its
// blocks, or, if a key is missing, kills the core. vLLM does so for every error answer of a handler, and when
// the client of a non-streaming request disconnects.
func (e *Engine) Reject(_ time.Duration, t *Transfer) {
	if t != nil && bool(t.DoRemotePrefill) && e.life.dead == nil && !e.cfg.NoLoad {
		e.leasing.cleanups = append(e.leasing.cleanups, t)
	}
}

// talk adds the orders that belong to no load: cleanups and heartbeats.
func (e *Engine) talk(now time.Duration) {
	e.turn.step.Orders = append(e.turn.step.Orders, e.leasing.pushing.orders...)
	e.leasing.pushing.orders = nil
	for _, t := range e.leasing.cleanups {
		if e.cfg.Mooncake || e.cfg.MoRIIO != 0 {
			if e.release(t); e.life.dead != nil {
				return
			}
			continue
		}
		if key := t.missing(e.cfg.Push); key != "" {
			e.life.die("schedule: build_connector_meta: KeyError: %q", key)
			return
		}
		if e.cfg.Push {
			continue // no message
		}
		e.turn.step.Orders = append(e.turn.step.Orders, notification(t))
	}
	clear(e.leasing.cleanups)
	e.leasing.cleanups = e.leasing.cleanups[:0]
	if e.leasing.beating > 0 && now >= e.leasing.nextBeat {
		e.leasing.nextBeat = now + e.cfg.Lease/6
		for _, r := range e.loads.loading {
			e.turn.beat(r)
		}
		for _, r := range e.queues.waiting.all() {
			e.turn.beat(r)
		}
	}
}

// beat adds r to the heartbeat for its peer.
func (e *engineTurn) beat(r *request) {
	if !r.load.beats {
		return
	}
	id, peer := r.load.transfer.RequestID.V, r.load.transfer.peer()
	for i := range e.step.Orders {
		if o := &e.step.Orders[i]; o.Kind == OrderHeartbeat && o.Peer == peer {
			o.RemoteIDs = append(o.RemoteIDs, id)
			return
		}
	}
	e.step.Orders = append(e.step.Orders, Order{Kind: OrderHeartbeat, Peer: peer, RemoteIDs: []string{id}})
}

// wake is the time of the next lease end or heartbeat, 0 if none.
func (e *leasing) wake() time.Duration {
	at := time.Duration(0)
	if e.leases > 0 {
		at = e.leaseMin
	}
	if e.beating > 0 && (at == 0 || e.nextBeat < at) {
		at = e.nextBeat
	}
	return at
}
