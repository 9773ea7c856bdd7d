package core

import (
	"regexp"
	"slices"
	"time"
)

// This file is the NIXL push connector. D tells P where its own blocks are, and P writes them when its
// prefill is done. It follows vLLM 0.32.0 in its mistakes too (nixl/push_scheduler.py, push_worker.py).

// Registration is what D tells P: the blocks that a request waits for.
type Registration struct {
	ID     string // of the request on D
	From   Peer   // D itself
	Blocks []int  // of D
	// Mooncake: the id that pairs the legs.
	Transfer string
}

// pushing pairs the finished prefills of P with the registrations that it was told.
type pushing struct {
	finished   []*request     // leased, and no registration has matched them
	registered []Registration // no prefill has matched them: they stay for ever, and their requests on D wait
	orders     []Order        // of the next step
}

// randomEnd is what vLLM appends to the id of each request, and cuts off to compare two ids.
var randomEnd = regexp.MustCompile(`(?i)-[0-9a-f]{8}$`)

func baseID(id string) string { return randomEnd.ReplaceAllString(id, "") }

// samePair returns the place of the id among n others: of the same id, or else of the first with the same
// base. -1: it is not there.
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

// register tells P of the blocks of r, which waits until they are written. If P never writes them, it waits
// for ever. A missing key is death.
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

// Register is D's word on P. Its request gets the blocks of the prefill with the same id, now or when that
// ends. A lease that has ended is no such prefill: then D waits for ever.
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

// prefilled pairs r, whose lease has begun, with a registration that came before.
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

// write orders the last blocks of r to be written over those of g. If D waits for more blocks than there are,
// only P's log tells the error.
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

// forget drops a lease that ends.
func (p *pushing) forget(r *request) {
	p.finished = slices.DeleteFunc(p.finished, func(x *request) bool { return x == r })
}

// Pushed says that the blocks of an OrderWrite have arrived: the lease ends. Without that word it runs out.
func (e *Engine) Pushed(now time.Duration, id string, blocks int) {
	r := e.known.held[id]
	if e.life.dead != nil || r == nil || r.state != leased {
		return
	}
	e.counted.counts.NixlTransfers++
	e.counted.counts.NixlBlocks += uint64(blocks)
	e.unlease(r)
}

// Write puts what P has written into blocks of D, whichever request holds them now. The request that
// registered them goes on. It reports whether the memory was there.
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
