package core

import (
	"maps"
	"slices"
	"time"
)

// This file is MoRI-IO in WRITE mode. D tells P the ids of its blocks under a transfer id, and P writes them
// when its prefill is done, into the engine that leg 1 has named. Then P tells D that they are written. The
// file follows vLLM 0.32.0 in its mistakes too (moriio/moriio_connector.py, moriio_engine.py).

// writing is a prefill whose blocks are to be written.
type writing struct {
	id      string // of the transfer
	request string // on P
	leg     *Transfer
	blocks  []int         // on P; they may belong to another request by now
	until   time.Duration // P waits no longer for D's message
	begun   bool
}

// writes is what P and D know of transfers.
type writes struct {
	unmet     []*writing              // P has no handshake with D yet
	scheduled map[string]*writing     // by transfer id
	asked     map[string]Registration // D's messages, by transfer id
	over      map[string]bool         // transfers that have ended on P: no message and no leg begins them again
	waiting   map[string]*request     // on D
	unmatched map[string]bool         // D was told that a transfer is written, and does not know it
	deaf      bool                    // the thread that hears messages has died, as of any that is not for it
}

func newWrites() writes {
	return writes{
		scheduled: make(map[string]*writing), asked: make(map[string]Registration), over: make(map[string]bool),
		waiting: make(map[string]*request), unmatched: make(map[string]bool),
	}
}

func (e *Engine) writes() bool { return e.cfg.MoRIIO == MoRIIOWrite }

// savable reads the keys of leg 1. It reports false if a missing key has ended the engine.
func (e *Engine) savable(t *Transfer, id string) bool {
	if !e.addressed(t, id) {
		return false
	}
	for _, key := range []struct {
		name  string
		there bool
	}{{"remote_block_ids", t.RemoteBlocks.Present}, {"remote_engine_id", t.EngineID.Present}} {
		if !key.there {
			e.life.die("schedule: add_new_req: KeyError: %q (request %s)", key.name, id)
			return false
		}
	}
	return true
}

// saveMoRIIO orders the handshake with the engine that leg 1 names. Mistake of vLLM: the blocks are written
// however the prefill ends, also if they are freed.
func (e *Engine) saveMoRIIO(at time.Duration, r *request) {
	if e.cfg.Role != Producer {
		return
	}
	leg := *r.load.transfer
	w := &writing{id: leg.TransferID.V, request: r.id, leg: &leg, until: at + e.cfg.Lease}
	for _, id := range r.blocks.table[:min(len(r.blocks.table), e.blocksFor(r.text.prompt))] {
		w.blocks = append(w.blocks, int(id))
	}
	m := &e.leasing.moriio
	m.unmet = append(m.unmet, w)
	e.turn.step.Orders = append(e.turn.step.Orders, Order{
		Kind: OrderMeet, Peer: w.leg.moriioPeer(w.leg.Handshake.V), TransferID: w.id,
	})
}

// Met schedules the writes to the engine of an OrderMeet. Mistake of vLLM: also those whose step went on
// without a handshake long ago, from whatever their blocks hold now.
func (e *Engine) Met(now time.Duration, with Peer) {
	m := &e.leasing.moriio
	var others []*writing
	for _, w := range m.unmet {
		if w.leg.moriioPeer(w.leg.Handshake.V) != with {
			others = append(others, w)
			continue
		}
		if !m.over[w.id] && m.scheduled[w.id] == nil {
			w.until = now + e.cfg.Lease
			m.scheduled[w.id] = w
			e.tryWrite(now, w)
		}
	}
	m.unmet = others
}

// HearBlocks is D's message on P: where to write the blocks of a transfer. P ignores it after the end of the
// transfer, and D waits for ever.
func (e *Engine) HearBlocks(now time.Duration, g Registration) {
	m := &e.leasing.moriio
	if e.life.dead != nil || m.deaf || m.over[g.Transfer] {
		return
	}
	if m.deaf = e.cfg.Role != Producer || len(g.Blocks) == 0; m.deaf {
		return
	}
	m.asked[g.Transfer] = g
	if w := m.scheduled[g.Transfer]; w != nil {
		e.tryWrite(now, w)
	}
}

// tryWrite orders a write if D has said where to. Mistakes of vLLM: only P's log has an error. The port of a
// rank is counted in ranks of tensor parallelism that leg 1 tells: none, if leg 1 does not.
func (e *Engine) tryWrite(now time.Duration, w *writing) {
	m := &e.leasing.moriio
	g, asked := m.asked[w.id]
	if !asked || w.begun {
		return
	}
	if w.until <= now || g.Rank >= max(1, int(w.leg.DPSize.V)) || len(w.blocks) > len(g.Blocks) {
		e.overWritten(w.id)
		return
	}
	w.begun = true
	to := w.leg.moriioPeer(w.leg.Handshake.V)
	to.Port += g.Rank * w.leg.RemoteTP.V
	e.leasing.pushing.orders = append(e.leasing.pushing.orders, Order{
		Kind: OrderPut, Peer: to, RequestID: w.request, TransferID: w.id, Blocks: w.blocks,
		To: slices.Clone(g.Blocks[:len(w.blocks)]),
	})
}

// Wrote ends an OrderPut. P tells D of blocks that are written. Of a write that failed, D hears nothing, and
// waits for ever.
func (e *Engine) Wrote(id string, ok bool) {
	m := &e.leasing.moriio
	w := m.scheduled[id]
	if e.life.dead != nil || w == nil {
		return
	}
	if ok {
		e.counted.counts.NixlTransfers++
		e.counted.counts.NixlBlocks += uint64(len(w.blocks))
		to := w.leg.moriioPeer(w.leg.Notify.V)
		to.Port += m.asked[id].Rank
		e.leasing.pushing.orders = append(e.leasing.pushing.orders,
			Order{Kind: OrderDone, Peer: to, TransferID: id})
	}
	e.overWritten(id)
}

// overWritten ends a transfer on P, and frees its blocks.
func (e *Engine) overWritten(id string) {
	m := &e.leasing.moriio
	delete(m.scheduled, id)
	delete(m.asked, id)
	m.over[id] = true
	e.freeTransfer(id)
}

// Put stores contents in blocks, whichever request holds them now. It returns false if the memory is not
// there.
func (e *Engine) Put(blocks []int, contents []uint64) bool {
	if e.life.dead != nil || e.life.sleep.emptied && e.life.sleep.level > 0 || len(blocks) != len(contents) ||
		slices.ContainsFunc(blocks, func(b int) bool { return b < 0 || b >= len(e.pool.blocks) }) {
		return false
	}
	for i, b := range blocks {
		e.pool.blocks[b].content = contents[i]
	}
	return true
}

// HearDone is P's message on D: the blocks of a transfer are written. If D does not know the transfer, the
// message waits for a request with this id, for ever.
func (e *Engine) HearDone(id string) {
	m := &e.leasing.moriio
	if e.life.dead != nil || m.deaf {
		return
	}
	if m.deaf = e.cfg.Role == Producer; m.deaf {
		return
	}
	if r := m.waiting[id]; r != nil {
		delete(m.waiting, id)
		e.goOn(r)
		return
	}
	m.unmatched[id] = true
}

// hears reports whether P can hear that a transfer needs no blocks. Such a message is not for D.
func (e *Engine) hears() bool {
	m := &e.leasing.moriio
	m.deaf = m.deaf || e.cfg.Role != Producer
	return !m.deaf
}

// await tells P where to write the blocks of r. Mistake of vLLM: after the prefill answer of another rank
// than D's own, D tells P nothing, unless it leads the request.
func (e *Engine) await(r *request) {
	t, m := r.load.transfer, &e.leasing.moriio
	e.loads.started(r)
	if m.unmatched[t.TransferID.V] {
		delete(m.unmatched, t.TransferID.V)
		e.goOn(r)
		return
	}
	m.waiting[t.TransferID.V] = r
	tells := !bool(t.Override) || e.cfg.Rank == int(t.DPRank.V) && present(t.DPRank)
	if t.Leader.Present && !t.Leader.Null {
		tells = bool(t.Leader.V)
	}
	if !tells {
		return
	}
	switch {
	case !present(t.Host) || t.Host.V == "", !present(t.Notify) || t.Notify.V == 0:
		e.life.die("schedule: update_state_after_alloc: ValueError: kv_transfer_params is missing remote_host / "+
			"remote_notify_port (request %s)", r.id)
		return
	case t.DPRank.Present && t.DPRank.Null:
		e.life.die("schedule: fold_local_rank: TypeError: NoneType (request %s)", r.id)
		return
	}
	e.turn.step.Orders = append(e.turn.step.Orders, blocksOrder(t, r.blocks.table))
}

// blocksOrder is D's message to P: where to write.
func blocksOrder(t *Transfer, table []int32) Order {
	o := Order{Kind: OrderRegister, Peer: t.moriioPeer(t.Notify.V), TransferID: t.TransferID.V}
	for _, id := range table {
		o.Blocks = append(o.Blocks, int(id))
	}
	return o
}

// strand ends a request that waits for P. Mistake of vLLM: D forgets its transfer id at once, so its blocks
// are never freed, also if P writes them.
func (e *Engine) strand(r *request) {
	maps.DeleteFunc(e.leasing.moriio.waiting, func(_ string, x *request) bool { return x == r })
	e.loads.leaked++
}

// releaseWrite tells P that a leg which was refused, or left before it was scheduled, needs no blocks.
// Without a key only D's log has a warning.
func (e *Engine) releaseWrite(t *Transfer) {
	switch {
	case !present(t.TransferID) || !present(t.Host) || !present(t.Notify):
	case t.DPRank.Present && t.DPRank.Null:
		e.life.die("schedule: get_port_offset: TypeError: NoneType")
	default:
		e.turn.step.Orders = append(e.turn.step.Orders, releaseOrder(t))
	}
}
