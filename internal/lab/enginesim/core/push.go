package core

import (
	"regexp"
	"slices"
	"time"
)

// This file is the NIXL push connector. D tells P the ids of its blocks. P writes them after its prefill. The
// file reproduces vLLM 0.32.0, mistakes included (nixl/push_scheduler.py, push_worker.py).

// Registration is D's message to P: the blocks that a request waits for.
type Registration struct {
	ID     string // the request's id on D
	From   Peer   // D itself
	Blocks []int  // ids on D
	// Mooncake and MoRI-IO: the transfer id, which pairs the legs.
	Transfer string
	Rank     int // MoRI-IO: data-parallel rank of D
}

// pushing pairs P's finished prefills with registrations.
type pushing struct {
	finished   []*request     // leased, not matched by a registration
	registered []Registration // not matched by a prefill: kept for ever, while their requests on D wait
	orders     []Order        // for the next step
}

// randomEnd is the suffix that vLLM appends to each request id, and removes before it compares two ids.
var randomEnd = regexp.MustCompile(`(?i)-[0-9a-f]{8}$`)

func baseID(id string) string { return randomEnd.ReplaceAllString(id, "") }

// samePair returns the index of id among n others, or else the index of the first with the same base, or else
// -1.
func samePair(id string, n int, other func(int) string) int {
	base := -1
	for i := range n {
		if other(i) == id {
			return i
		}
		if base < 0 && baseID(other(i)) == baseID(id) {
			base = i
		}
	}
	return base
}

// register tells P which blocks to write for r. If P never writes them, r waits for ever. If a key is
// missing, the engine dies.
func (e *Engine) register(r *request) {
	t := r.load.transfer
	key := ""
	switch {
	case !t.EngineID.Present:
		key = "remote_engine_id"
	case !t.Host.Present:
		key = "remote_host"
	case !t.Port.Present:
		key = "remote_port"
	case !t.TPSize.Present:
		key = "tp_size"
	case !t.RequestID.Present:
		key = "remote_request_id"
	}
	if key != "" {
		e.life.die("schedule: update_state_after_alloc: KeyError: %q (request %s)", key, r.id)
		return
	}
	r.load.asked = e.turn.now
	order := Order{Kind: OrderRegister, Peer: t.peer(), RequestID: r.id}
	for _, id := range r.blocks.table[len(r.blocks.table)-r.load.reads:] {
		order.Blocks = append(order.Blocks, int(id))
	}
	e.turn.step.Orders = append(e.turn.step.Orders, order)
}

// Register is D's message on P. P writes the blocks of the prefill with the same id, now or when that prefill
// ends. If its lease has expired, D waits for ever.
func (e *Engine) Register(now time.Duration, g Registration) {
	if e.life.dead != nil {
		return
	}
	e.expire(now)
	p := &e.leasing.pushing
	i := samePair(g.ID, len(p.finished), func(i int) string { return p.finished[i].id })
	if i < 0 {
		p.registered = append(p.registered, g)
		return
	}
	r := p.finished[i]
	p.finished = slices.Delete(p.finished, i, i+1)
	p.write(r, &g)
}

// prefilled pairs r, whose lease has begun, with an earlier registration.
func (p *pushing) prefilled(r *request) {
	i := samePair(r.id, len(p.registered), func(i int) string { return p.registered[i].ID })
	if i < 0 {
		p.finished = append(p.finished, r)
		return
	}
	g := p.registered[i]
	p.registered = slices.Delete(p.registered, i, i+1)
	p.write(r, &g)
}

// write orders r's last blocks to be written over those of g. If D waits for more blocks than r has, nothing
// is written, and only P's log has the error.
func (p *pushing) write(r *request, g *Registration) {
	have := r.lease.out.BlockIDs
	if len(g.Blocks) > len(have) {
		return
	}
	order := Order{Kind: OrderWrite, Peer: g.From, RequestID: r.id, RemoteIDs: []string{g.ID}, To: g.Blocks}
	for _, id := range have[len(have)-len(g.Blocks):] {
		order.Blocks = append(order.Blocks, int(id))
	}
	p.orders = append(p.orders, order)
}

// forget removes a request whose lease ends.
func (p *pushing) forget(r *request) {
	p.finished = slices.DeleteFunc(p.finished, func(x *request) bool { return x == r })
}

// Pushed ends the lease, after the blocks of an OrderWrite arrived. Without this call the lease expires.
func (e *Engine) Pushed(now time.Duration, id string, blocks int) {
	r := e.known.held[id]
	if e.life.dead != nil || r == nil || r.state != leased {
		return
	}
	e.counted.counts.NixlTransfers++
	e.counted.counts.NixlBlocks += uint64(blocks)
	e.unlease(r)
}

// Write stores contents from P in blocks of D, whichever request holds them now. The request that registered
// them continues. Write returns false if the memory was not there.
func (e *Engine) Write(now time.Duration, id string, blocks []int, contents []uint64) bool {
	if e.life.dead != nil || e.life.sleep.emptied && e.life.sleep.level > 0 || len(blocks) != len(contents) {
		return false
	}
	for _, b := range blocks {
		if b <= 0 || b >= len(e.pool.blocks) {
			return false
		}
	}
	for i, b := range blocks {
		e.pool.blocks[b].content = contents[i]
	}
	e.Loaded(now, id, contents, nil)
	return true
}
