package core

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// vLLM's P2P tier (vLLM 0.32.0, v1/kv_offload/tiering/p2p): an engine pulls blocks from the host memory of
// another engine into its own host memory, and from there to the GPU. It asks for each block that neither its
// GPU nor its host memory has. The request waits for the answer, outside the queue. No time limit ends the
// question. An answer without blocks, or no connection, means that the prompt is computed.

// KVSource is remote_kv_source of a request. It counts only if all three keys are there.
type KVSource struct {
	ID   string      `json:"kv_request_id"`
	Host string      `json:"remote_host"`
	Port json.Number `json:"remote_port"`
}

// source returns the engine that r asks, and whether there is one.
func (t *Transfer) source() (Peer, bool) {
	s := &t.Source.V
	port, err := strconv.Atoi(string(s.Port))
	named := t.Source.Present && s.ID != "" && s.Host != ""
	return Peer{Host: s.Host, Port: port}, named && err == nil && port > 0
}

// asks begins the question of r to its source, once. It reports whether r waits for an answer from now on.
func (e *Engine) asks(r *request) bool {
	if e.pool.tier == nil || !e.cfg.P2P || r.load.transfer == nil || r.load.probed || r.ask.skipRead {
		return false
	}
	r.load.probed = true
	peer, ok := r.load.transfer.source()
	if !ok {
		return false
	}
	have := len(e.lookup(r))
	have += e.offloaded(r, have*e.cfg.BlockSize) / e.cfg.BlockSize
	names := r.blocks.hashes[:(len(r.text.tokens)-1)/e.cfg.BlockSize]
	if have >= len(names) {
		return false
	}
	r.state = probing
	e.loads.loading = append(e.loads.loading, r)
	e.turn.step.Orders = append(e.turn.step.Orders, Order{
		Kind: OrderProbe, Peer: peer, RequestID: r.id, Names: slices.Clone(names[have:]),
	})
	return true
}

// Fetched ends the question of a request. contents are those of the blocks that the source had, in the order
// of [Order.Names]; they are in host memory now. The request is scheduled next. An unknown request has left.
func (e *Engine) Fetched(now time.Duration, o *Order, contents []uint64) {
	r := e.known.reqs[o.RequestID]
	if r == nil || r.state != probing || e.life.dead != nil {
		return
	}
	e.loads.loading = slices.DeleteFunc(e.loads.loading, func(x *request) bool { return x == r })
	told := e.nothingSaved()
	for group := range e.groups.count {
		for i, c := range contents {
			e.save(&told, row{group, o.Names[i]}, c, now)
		}
	}
	e.tell(nil, &told)
	r.state = waiting
	e.queues.waiting.unshift(r)
}

// Offers returns the contents of the leading blocks with these names that the engine has in host memory.
func (e *Engine) Offers(now time.Duration, names []kv.EngineHash) (contents []uint64) {
	t := e.pool.tier
	if t == nil || !e.cfg.P2P {
		return nil
	}
	return t.Store.contents(names[:t.Store.ahead(names, 0, t.Began+now)])
}
