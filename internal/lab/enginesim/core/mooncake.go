package core

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// This file is the Mooncake connector. D asks P for the blocks under a transfer id, and P writes them when
// its prefill is done; either may come first. It follows vLLM 0.32.0 in its mistakes too
// (mooncake/mooncake_connector.py).

const (
	mooncakeTasks = 20               // questions of D that P waits for at once; all others wait for them
	mooncakeDead  = 60 * time.Second // D waits longer than P by this, where P says nothing at all
)

var (
	errNotReady  = errors.New("timeout waiting for P side ready")
	errFewer     = errors.New("transfer: P num blocks less than D")
	errNoAnswer  = errors.New("transfer failed: resource temporarily unavailable")
	mooncakeName = map[Role]string{Producer: "is_kv_producer", Consumer: "is_kv_consumer"}
)

// Role is vLLM's kv_role. The zero value is kv_both.
type Role uint8

// The roles.
const (
	Both Role = iota
	Producer
	Consumer
)

// sending is a prefill that D may ask for, from when P has scheduled it or D has asked.
type sending struct {
	r *request // nil until it has ended well
}

// asking is a question of D that one of P's tasks waits with.
type asking struct {
	Registration
	of    *sending
	until time.Duration
}

// mooncake is what P knows of transfers.
type mooncake struct {
	sends map[string]*sending // by transfer id
	tasks []asking
	queue []Registration // questions for which no task is free
}

// notRole ends an engine that gets a leg of the other role.
func (e *Engine) notRole(role Role, r *request) bool {
	if !e.cfg.Mooncake || e.cfg.Role != role {
		return false
	}
	e.life.die("schedule: assert not self.%s (request %s)", mooncakeName[role], r.id)
	return true
}

// enlist notes a prefill that P begins. Without a transfer id only P's log tells a warning.
func (e *Engine) enlist(r *request) {
	t := r.load.transfer
	if e.cfg.MoRIIO != 0 {
		e.enlistMoRIIO(r)
		return
	}
	if !e.cfg.Mooncake || t == nil || !bool(t.DoRemoteDecode) || e.notRole(Consumer, r) || t.TransferID.V == "" {
		return
	}
	if m := &e.leasing.mooncake; m.sends[t.TransferID.V] == nil {
		m.sends[t.TransferID.V] = new(sending)
	}
}

// endMooncake keeps the blocks of a prefill that has ended at its length. Any other end drops them, and the
// entry with them: a question that waits for this entry goes on to wait.
func (e *Engine) endMooncake(at time.Duration, r *request, why Reason) {
	m, id := &e.leasing.mooncake, r.load.transfer.TransferID.V
	switch send := m.sends[id]; {
	case id == "":
		e.drop(r)
	case why != FinishLength:
		delete(m.sends, id)
		e.drop(r)
	case send == nil: // KeyError in a task whose result nobody reads: the blocks are never freed
		e.lease(at, r)
		r.lease.expiry = never
	default:
		if send.r != nil { // of another prefill with the same id: it is forgotten, and never freed
			send.r.lease.expiry = never
		}
		send.r = r
		e.lease(at, r)
		e.answerAsked(at)
	}
}

// aborted forgets the entry of a prefill that is aborted, also if D has made it.
func (m *mooncake) aborted(r *request) {
	if t := r.load.transfer; t != nil && bool(t.DoRemoteDecode) && t.TransferID.V != "" {
		delete(m.sends, t.TransferID.V)
	}
}

const never = time.Duration(1<<63 - 1)

// forget forgets the entry of a prefill whose blocks are freed.
func (m *mooncake) forget(r *request) {
	if r.load.transfer == nil {
		return
	}
	if id := r.load.transfer.TransferID.V; m.sends[id] != nil && m.sends[id].r == r {
		delete(m.sends, id)
	}
}

// ask orders the blocks that r lacks. Without one of the keys there is only a warning in vLLM's log, and r
// waits for ever.
func (e *Engine) ask(r *request) {
	if !r.load.transfer.meets() {
		r.state = lost
		return
	}
	r.load.asked = e.turn.now
	order := askOrder(r.load.transfer)
	order.RequestID = r.id
	for _, id := range r.blocks.table[len(r.blocks.table)-r.load.reads:] {
		order.Blocks = append(order.Blocks, int(id))
	}
	e.turn.step.Orders = append(e.turn.step.Orders, order)
}

// meets reports whether the three keys are there by which D asks. Null passes.
func (t *Transfer) meets() bool {
	return t.EngineID.Present && t.Bootstrap.Present && t.TransferID.Present
}

// askOrder is a question without blocks, after which P frees its own.
func askOrder(t *Transfer) Order {
	return Order{
		Kind: OrderRegister, Peer: Peer{EngineID: t.EngineID.V},
		Bootstrap: t.Bootstrap.V, TransferID: t.TransferID.V,
	}
}

// release tells P that a leg which was refused, or left before it was scheduled, needs no blocks.
func (e *Engine) release(t *Transfer) {
	switch {
	case e.cfg.MoRIIO != 0:
		e.releaseMoRIIO(t)
	case t.TransferID.V == "":
	case !t.EngineID.Present:
		e.life.die("schedule: build_connector_meta: KeyError: %q", "remote_engine_id")
	case !t.Bootstrap.Present:
		e.life.die("schedule: build_connector_meta: KeyError: %q", "remote_bootstrap_addr")
	default:
		e.turn.step.Orders = append(e.turn.step.Orders, askOrder(t))
	}
}

// Ask is D's question: its blocks, or none, are to be written when the prefill with the same transfer id is
// done.
func (e *Engine) Ask(now time.Duration, g Registration) {
	if e.life.dead != nil {
		return
	}
	e.expire(now)
	e.leasing.mooncake.queue = append(e.leasing.mooncake.queue, g)
	e.answerAsked(now)
}

// answerAsked gives the questions to tasks, and answers those whose prefill is done or whose time is over.
func (e *Engine) answerAsked(now time.Duration) {
	m := &e.leasing.mooncake
	for {
		for len(m.queue) > 0 && len(m.tasks) < mooncakeTasks {
			g := m.queue[0]
			m.queue = m.queue[1:]
			if m.sends[g.Transfer] == nil {
				m.sends[g.Transfer] = new(sending)
			}
			m.tasks = append(m.tasks, asking{g, m.sends[g.Transfer], now + e.cfg.Lease})
		}
		i := slices.IndexFunc(m.tasks, func(a asking) bool { return a.of.r != nil || a.until <= now })
		if i < 0 {
			return
		}
		a := m.tasks[i]
		m.tasks = slices.Delete(m.tasks, i, i+1)
		e.answer(&a)
	}
}

// answer ends a task. The blocks of a prefill that is forgotten meanwhile are not sent, and D hears nothing.
func (e *Engine) answer(a *asking) {
	refuse := func(why error) {
		if len(a.Blocks) > 0 {
			e.leasing.pushing.orders = append(e.leasing.pushing.orders,
				Order{Kind: OrderRefuse, Peer: a.From, RemoteIDs: []string{a.ID}, Why: why})
		}
	}
	switch r := a.of.r; {
	case r == nil:
		refuse(errNotReady)
	case e.leasing.mooncake.sends[a.Transfer] != a.of:
	case len(a.Blocks) == 0:
		e.unlease(r)
	case len(a.Blocks) > len(r.lease.out.BlockIDs):
		refuse(errFewer)
	default:
		e.leasing.pushing.write(r, &a.Registration)
	}
}

// giveUpAsked fails the loads that P has not answered at all.
func (e *Engine) giveUpAsked(now time.Duration) {
	if !e.cfg.Mooncake {
		return
	}
	for _, r := range e.waitsForP() {
		if r.load.asked+e.cfg.Lease+mooncakeDead <= now {
			e.Loaded(now, r.id, nil, errNoAnswer)
		}
	}
}

// waitsForP are the requests whose blocks P may still write, in the order in which they asked.
func (e *Engine) waitsForP() (all []*request) {
	for _, r := range e.loads.loading {
		if r.state == loading {
			all = append(all, r)
		}
	}
	for _, r := range e.known.held {
		if r.state == unread {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// wakeAsked is when the first request gives up, or a task of P does; 0 for never.
func (e *Engine) wakeAsked() (at time.Duration) {
	if !e.cfg.Mooncake {
		return 0
	}
	for _, a := range e.leasing.mooncake.tasks {
		at = earlier(at, a.until)
	}
	for _, r := range e.waitsForP() {
		at = earlier(at, r.load.asked+e.cfg.Lease+mooncakeDead)
	}
	return at
}

func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// wakeAt is when something happens by itself, 0 for never.
func (e *Engine) wakeAt() time.Duration {
	at := e.wake()
	if asked := e.wakeAsked(); asked > 0 {
		at = earlier(at, asked)
	}
	return at
}
