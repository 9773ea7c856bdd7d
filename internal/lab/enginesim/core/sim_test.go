package core

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// bench executes the orders of engines to each other in virtual time, and records their outputs.
type bench struct {
	t       fataler
	now     time.Duration
	engines []*Engine
	text    map[string][]uint32
	ends    map[string]Output
	params  map[string][]byte // of finished prefills, as JSON
	events  map[*Engine][]kv.Event
	delay   func() time.Duration // duration of a read; nil means none
	pending []pendingRead
	refuse  bool // reads fail
}

// fataler is the part of testing.TB and rapid.T that bench needs.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type pendingRead struct {
	at    time.Duration
	e     *Engine
	order Order
}

func newBench(t fataler, engines ...*Engine) *bench {
	return &bench{
		t: t, engines: engines, text: map[string][]uint32{}, ends: map[string]Output{}, params: map[string][]byte{},
		events: map[*Engine][]kv.Event{},
	}
}

func (b *bench) add(e *Engine, r *Request) {
	b.t.Helper()
	if err := e.Add(b.now, r); err != nil {
		b.t.Fatalf("Add %s: %v", r.ID, err)
	}
}

// settle steps all engines until nothing more happens at this time. Then it advances to the next read,
// until everything has ended.
func (b *bench) settle() {
	b.t.Helper()
	for round := 0; ; round++ {
		if round > 1_000_000 {
			b.t.Fatal("the engines never become idle")
		}
		busy := false
		for _, e := range b.engines {
			busy = b.step(e) || busy
		}
		if busy {
			continue
		}
		if len(b.pending) == 0 {
			return
		}
		b.land()
	}
}

// step makes one step of e and executes its orders.
func (b *bench) step(e *Engine) bool {
	st := e.Step(b.now)
	b.now += st.Took
	for _, o := range st.Outputs {
		if o.Reason != FinishError {
			b.text[o.ID] = append(b.text[o.ID], o.Token)
		}
		if o.Finished {
			if _, twice := b.ends[o.ID]; twice {
				b.t.Fatalf("%s ended twice", o.ID)
			}
			if o.Params != nil {
				b.params[o.ID] = o.Params.AppendJSON(nil)
				o.Params = nil
			}
			b.ends[o.ID] = o
		}
	}
	for _, ev := range st.Events {
		ev.Hashes, ev.Tokens = slices.Clone(ev.Hashes), slices.Clone(ev.Tokens)
		b.events[e] = append(b.events[e], ev)
	}
	for _, o := range st.Orders {
		b.obey(e, o)
	}
	checkPool(b.t, e)
	return !st.Idle || len(st.Orders) > 0
}

func (b *bench) obey(e *Engine, o Order) {
	if o.Kind == OrderRead && b.delay != nil {
		b.pending = append(b.pending, pendingRead{b.now + b.delay(), e, o})
		return
	}
	b.carryOut(e, o)
}

func (b *bench) carryOut(e *Engine, o Order) {
	if b.obeyMooncake(e, o) || b.obeyWrite(e, o) {
		return
	}
	peer := b.peer(o.Peer)
	switch {
	case (o.Kind == OrderRead || o.Kind == OrderRegister) && (peer == nil || b.refuse):
		e.Loaded(b.now, o.RequestID, nil, errors.New("handshake failed"))
	case o.Kind == OrderRead:
		contents := peer.ReadBlocks(o.Blocks)
		var err error
		if contents == nil {
			err = errors.New("NIXL_ERR_NOT_FOUND")
		}
		peer.Notify(b.now, o.RemoteIDs[0])
		e.Loaded(b.now, o.RequestID, contents, err)
	case peer == nil:
	case o.Kind == OrderNotify:
		peer.Notify(b.now, o.RemoteIDs[0])
	case o.Kind == OrderHeartbeat:
		peer.Heartbeat(b.now, o.RemoteIDs)
	case o.Kind == OrderRegister:
		from := Peer{EngineID: e.EngineID(), Host: e.cfg.Host, Port: e.cfg.Port}
		peer.Register(b.now, Registration{ID: o.RequestID, From: from, Blocks: o.Blocks})
	case o.Kind == OrderWrite && !b.refuse:
		if peer.Write(b.now, o.RemoteIDs[0], o.To, e.ReadBlocks(o.Blocks)) {
			e.Pushed(b.now, o.RequestID, len(o.Blocks))
		}
	}
}

// land executes the earliest pending read.
func (b *bench) land() {
	i := 0
	for j := range b.pending {
		if b.pending[j].at < b.pending[i].at {
			i = j
		}
	}
	p := b.pending[i]
	b.pending = slices.Delete(b.pending, i, i+1)
	b.now = max(b.now, p.at)
	b.carryOut(p.e, p.order)
}

func (b *bench) peer(p Peer) *Engine {
	for _, e := range b.engines {
		if e.EngineID() == p.EngineID && e.cfg.Host == p.Host && e.cfg.Port == p.Port {
			return e
		}
	}
	return nil
}

// plain runs a prompt on e without a split.
func (b *bench) plain(e *Engine, id string, prompt []uint32, out int) []uint32 {
	b.t.Helper()
	b.add(e, &Request{ID: id, Prompt: prompt, MaxTokens: out})
	b.settle()
	return b.text[id]
}

// prefill runs leg 1 and returns the params of P.
func (b *bench) prefill(p *Engine, id string, prompt []uint32) *Transfer {
	b.t.Helper()
	b.add(p, &Request{ID: id, Prompt: prompt, MaxTokens: 1, Transfer: &Transfer{DoRemoteDecode: true}})
	b.settle()
	return b.take(id)
}

// take parses the params of a finished prefill, anew for each call.
func (b *bench) take(id string) *Transfer {
	b.t.Helper()
	t, err := ParseTransfer(b.params[id])
	if err != nil {
		b.t.Fatalf("params of %s: %v", id, err)
	}
	return t
}

// decode runs leg 2.
func (b *bench) decode(d *Engine, id string, prompt []uint32, out int, t *Transfer) []uint32 {
	b.t.Helper()
	b.add(d, &Request{ID: id, Prompt: prompt, MaxTokens: out, Transfer: t})
	b.settle()
	return b.text[id]
}

// pair returns a P and a D that know each other, and a third engine for the right texts.
func pair(t fataler, c Config) (b *bench, p, d, solo *Engine) {
	c.Blocks = cmp.Or(c.Blocks, 256)
	c.EngineID, c.Port = "p", 1
	p = New(c)
	c.EngineID, c.Port = "d", 2
	d = New(c)
	solo = New(Config{
		BlockSize: c.BlockSize, Vocab: c.Vocab, Weights: c.Weights, MaxModelLen: c.MaxModelLen, Blocks: 1024,
	})
	return newBench(t, p, d, solo), p, d, solo
}

func prompt(seed uint64, n int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(2048))
	}
	return out
}

func same(t testing.TB, what string, got, want []uint32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// checkPool checks the laws of the pool: the free queue is consistent, no request holds a free block, the
// numbers of holders add up, and the cache finds each hash.
func checkPool(t fataler, e *Engine) {
	t.Helper()
	if err := poolLaws(e); err != nil {
		t.Fatal(err)
	}
}

func poolLaws(e *Engine) error {
	p := &e.pool
	refs := make([]int32, len(p.blocks))
	count := func(rs ...*request) {
		for _, r := range rs {
			for _, id := range slices.Concat(r.blocks.table, r.blocks.beside) {
				refs[id]++
			}
		}
	}
	for _, r := range e.known.reqs {
		count(r)
	}
	for _, r := range e.known.held {
		count(r)
	}
	free, last := 0, int32(0)
	for id := p.blocks[0].next; id != 0; id = p.blocks[id].next {
		if p.blocks[id].prev != last || p.blocks[id].refs != 0 {
			return fmt.Errorf("free queue is broken at block %d", id)
		}
		if free++; free > len(p.blocks) {
			return errors.New("free queue is a ring")
		}
		last = id
	}
	if free != p.free {
		return fmt.Errorf("free queue has %d blocks, counter says %d", free, p.free)
	}
	held, hashed := 0, 0
	for id := 1; id < len(p.blocks); id++ {
		b := &p.blocks[id]
		if b.refs > 0 {
			held++
		}
		if e.loads.leaked == 0 && b.refs != refs[id] {
			return fmt.Errorf("block %d has %d references, tables say %d", id, b.refs, refs[id])
		}
		if b.hash != 0 {
			hashed++
		}
	}
	if free+held != len(p.blocks)-1 {
		return fmt.Errorf("%d free + %d held of %d", free, held, len(p.blocks)-1)
	}
	for _, slot := range p.cached.slots {
		if slot == 0 {
			continue
		}
		first := slot.block()
		h := p.blocks[first].hash
		if p.first(h) != first {
			return fmt.Errorf("block %d is in the cache, and not found there", first)
		}
		for id := first; ; {
			if p.blocks[id].hash != h {
				return fmt.Errorf("block %d is filed under another hash", id)
			}
			hashed--
			if id = p.blocks[id].behind; id == first {
				break
			}
		}
	}
	if hashed != 0 {
		return fmt.Errorf("%d hashed blocks are not in the cache", hashed)
	}
	if refs[0] != 0 {
		return errors.New("null block in a table")
	}
	return nil
}
