package core

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// This file is the MoRI-IO connector: what both modes share, and READ mode, in which D reads P's blocks
// within its step. It follows vLLM 0.32.0 in its mistakes too (moriio/moriio_connector.py, moriio_common.py).

// MoRIIO is the mode of vLLM's MoRIIOConnector; the zero value is another connector.
type MoRIIO uint8

// The modes.
const (
	MoRIIORead  MoRIIO = iota + 1 // "read_mode":true
	MoRIIOWrite                   // vLLM's default
)

// moriio is what P knows of transfers.
type moriio struct {
	sends map[string]*request // the newest request of each transfer id
	early map[string]bool     // released before a request of this id was scheduled
	writes
}

// ports are the keys of MoRI-IO's params that only this connector has.
type ports struct {
	Handshake   Field[wireInt] `json:"remote_handshake_port"`
	Notify      Field[wireInt] `json:"remote_notify_port"`
	DPRank      Field[wireInt] `json:"remote_dp_rank"`
	DPSize      Field[wireInt] `json:"remote_dp_size"`
	DPSizeLocal Field[wireInt] `json:"remote_dp_size_local"`
	Override    Truth          `json:"remote_dp_rank_override"`
	Leader      Field[Truth]   `json:"is_request_leader"`
	RemoteTP    Field[int]     `json:"remote_tp_size"`
}

// wireInt is a number, also a quoted one, as int() of Python reads it.
type wireInt int

// UnmarshalJSON refuses what int() refuses.
func (n *wireInt) UnmarshalJSON(b []byte) error {
	text := string(b)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	got, err := strconv.Atoi(text)
	*n = wireInt(got)
	return err
}

// loadsInStep reports whether the engine takes each prompt for loaded, up to its last token. MoRI-IO takes an
// engine that is not a producer for a consumer, also one with the role kv_both.
func (e *Engine) loadsInStep() bool { return e.cfg.MoRIIO == MoRIIORead && e.cfg.Role != Producer }

// promisedMoRIIO returns what the connector says it will load. Mistake of vLLM in READ mode: it does not look
// whether the request has params at all, and promises the same again to a request that was preempted.
func (e *Engine) promisedMoRIIO(r *request, local int) int {
	switch {
	case e.loadsInStep():
		return max(0, r.text.prompt-local-1)
	case e.writes() && e.cfg.Role != Producer && r.load.transfer != nil && bool(r.load.transfer.DoRemotePrefill):
		return max(0, r.text.prompt-local)
	}
	return 0
}

// loadMoRIIO orders the blocks of r. Mistake of vLLM: without params, block ids or an engine id nothing is
// loaded, and the request goes on with what its blocks hold.
func (e *Engine) loadMoRIIO(r *request) {
	t := r.load.transfer
	if t == nil || !bool(t.DoRemotePrefill) {
		e.goOn(r)
		return
	}
	if e.writes() {
		e.await(r)
		return
	}
	e.loads.started(r)
	if !t.blocks() || !t.EngineID.Present {
		e.goOn(r)
		return
	}
	groups := t.RemoteBlocks.V.Groups
	if t.RemoteBlocks.V.Broken || len(groups) != 1 {
		e.life.die("schedule: update_state_after_alloc: ValueError: zip() of the groups (request %s)", r.id)
		return
	}
	ids := alignMoRIIO(len(r.blocks.table), groups[0])
	if ids == nil {
		e.life.die("schedule: _align_read_blocks: ValueError: decode block ids exceed prefill block ids beyond "+
			"the allowed local tail: %d > %d (request %s)", len(r.blocks.table), len(groups[0]), r.id)
		return
	}
	if !e.addressed(t, r.id) {
		return
	}
	r.load.asked, r.load.reads = e.turn.now, len(ids)
	e.turn.step.Orders = append(e.turn.step.Orders, Order{
		Kind: OrderRead, Peer: t.moriioPeer(t.Handshake.V), RequestID: r.id, RemoteIDs: []string{t.TransferID.V},
		Blocks: ids,
	})
}

// alignMoRIIO returns the blocks on P that are read into a table of so many blocks. A table may have one
// block more, for the last token. vLLM reads nothing into it; here it gets a wrong block. With a longer list,
// D reads its end, at the wrong places.
func alignMoRIIO(table int, remote []int) []int {
	switch {
	case table > len(remote)+1:
		return nil
	case table > len(remote):
		return append(slices.Clone(remote), remote[len(remote)-1])
	}
	return remote[len(remote)-table:]
}

// goOn lets r run, whatever its blocks hold.
func (e *Engine) goOn(r *request) {
	r.state = loaded
	e.loads.arrived++
}

// GiveUpWaiting lets a request run whose read takes longer than transfer_timeout. Mistake of vLLM: the step
// goes on over blocks that are not there.
func (e *Engine) GiveUpWaiting(id string) {
	if r := e.known.reqs[id]; e.life.dead == nil && r != nil && r.state == loading {
		e.goOn(r)
	}
}

// addressed reads the keys that add_new_req reads. It reports false if a missing key has ended the engine.
func (e *Engine) addressed(t *Transfer, id string) bool {
	switch {
	case !present(t.Host) || t.Host.V == "", !present(t.Handshake), !present(t.Notify):
		e.life.die("schedule: add_new_req: ValueError: request_id %q does not embed a peer zmq_address and "+
			"kv_transfer_params is missing one or more sidecar-fallback keys", id)
	case t.DPSizeLocal.Present && t.DPSizeLocal.Null, t.DPSize.Present && t.DPSize.Null,
		t.DPRank.Present && t.DPRank.Null:
		e.life.die("schedule: add_new_req: TypeError: int() argument must not be NoneType (request %s)", id)
	}
	return e.life.dead == nil
}

func present[T any](f Field[T]) bool { return f.Present && !f.Null }

// moriioPeer is the rank of P that has the blocks. Nothing names its process: a restarted one has the same
// name.
func (t *Transfer) moriioPeer(port wireInt) Peer {
	return Peer{
		EngineID: fmt.Sprintf("%s:%d", t.Host.V, port), Host: t.Host.V, Port: int(port) + int(t.DPRank.V),
		Ranks: max(1, t.TPSize.V),
	}
}

func releaseOrder(t *Transfer) Order {
	return Order{Kind: OrderNotify, Peer: t.moriioPeer(t.Notify.V), RemoteIDs: []string{t.TransferID.V}}
}

// releaseMoRIIO tells P that a leg which was refused, or left before it was scheduled, needs no blocks.
func (e *Engine) releaseMoRIIO(t *Transfer) {
	if e.writes() {
		e.releaseWrite(t)
		return
	}
	for key, there := range map[string]bool{
		"transfer_id": t.TransferID.Present, "remote_block_ids": t.RemoteBlocks.Present,
		"remote_engine_id": t.EngineID.Present,
	} {
		if !there {
			e.life.die("schedule: add_new_req: KeyError: %q", key)
			return
		}
	}
	if e.addressed(t, "") && e.cfg.Role != Producer {
		e.turn.step.Orders = append(e.turn.step.Orders, releaseOrder(t))
	}
}

// declineMoRIIO tells P that nothing is left to read. In WRITE mode only P loads nothing: it sends itself an
// empty message, which makes it deaf.
func (e *Engine) declineMoRIIO(r *request) {
	t := r.load.transfer
	if e.writes() {
		e.turn.step.Orders = append(e.turn.step.Orders, blocksOrder(t, nil))
		return
	}
	if e.loadsInStep() && t.blocks() && t.EngineID.Present && e.addressed(t, r.id) {
		e.turn.step.Orders = append(e.turn.step.Orders, releaseOrder(t))
	}
}

// enlistMoRIIO maps the transfer id of a prefill that P begins. An id that is missing is invented.
func (e *Engine) enlistMoRIIO(r *request) {
	t := r.load.transfer
	if t == nil {
		return
	}
	if t.TransferID.V == "" {
		t.TransferID = Has("sidecar-" + r.id)
	}
	if !bool(t.DoRemoteDecode) || e.writes() && !e.savable(t, r.id) {
		return
	}
	e.leasing.moriio.sends[t.TransferID.V] = r
}

// endMoRIIO keeps the blocks of a prefill that has ended at its length. Any other end drops them. A consumer
// hands over as well, and never frees what it has handed over.
func (e *Engine) endMoRIIO(at time.Duration, r *request, why Reason) *TransferOut {
	m, id := &e.leasing.moriio, r.load.transfer.TransferID.V
	if e.writes() {
		e.saveMoRIIO(at, r)
	}
	if why != FinishLength {
		e.drop(r)
		return nil
	}
	out := e.lease(at, r)
	out.MoRIIO = &moriioOut{id, e.cfg.Rank, max(1, e.cfg.DPSize)}
	if e.cfg.Role != Producer {
		r.lease.expiry = never
	}
	if m.early[id] {
		delete(m.early, id)
		e.unlease(r)
	}
	return out
}

// forget forgets a prefill whose blocks are freed.
func (m *moriio) forget(r *request) {
	if r.load.transfer == nil {
		return
	}
	if id := r.load.transfer.TransferID.V; m.sends[id] == r {
		delete(m.sends, id)
	}
}

// releaseTransfer is a peer's message that it has read, or does not want, the blocks of a transfer.
func (e *Engine) releaseTransfer(id string) {
	switch {
	case !e.writes():
		e.freeTransfer(id)
	case e.hears():
		e.overWritten(id)
	}
}

// freeTransfer frees the blocks of a transfer. Of two requests with one id, the newer one is freed.
func (e *Engine) freeTransfer(id string) {
	m := &e.leasing.moriio
	if r := m.sends[id]; r != nil && r.state == leased {
		e.unlease(r)
		return
	}
	m.early[id] = true // until a request of this id has ended, or for ever
}

// moriioOut is what only MoRI-IO tells.
type moriioOut struct {
	id          string // of the transfer
	rank, ranks int    // the data-parallel rank, and their number
}

// appendMoRIIO appends what MoRI-IO tells after the engine id. The ports are those of rank 0; they are
// numbers or texts, as in the engine's configuration.
func (t *TransferOut) appendMoRIIO(dst []byte) []byte {
	dst = appendQuoted(append(dst, `,"remote_host":`...), t.Host)
	m, port := t.MoRIIO, t.Port-t.MoRIIO.rank
	dst = fmt.Appendf(dst, `,"remote_handshake_port":%d,"remote_notify_port":"%d","remote_dp_rank":%d,`+
		`"remote_dp_rank_override":true,"remote_dp_size":%d,"remote_dp_size_local":%d,"tp_size":%d,"transfer_id":`,
		port, port, m.rank, m.ranks, m.ranks, t.TPSize)
	dst = appendQuoted(dst, m.id)
	if t.Cached >= 0 {
		dst = fmt.Appendf(dst, `,"remote_prefill_cached_tokens":%d`, t.Cached)
	}
	return append(dst, '}')
}
