package core

import (
	"fmt"
	"testing"
	"time"
)

// writePair is pair with MoRI-IO in WRITE mode, a producer and a consumer.
func writePair(t fataler, c Config) (b *bench, p, d, solo *Engine) {
	c.MoRIIO = MoRIIOWrite
	b, p, d, solo = pair(t, c)
	p.cfg.Role, d.cfg.Role = Producer, Consumer
	return b, p, d, solo
}

// obeyWrite carries out what WRITE mode asks of another engine. Where none is, messages wait for ever.
func (b *bench) obeyWrite(e *Engine, o Order) bool {
	peer := b.peer(o.Peer)
	switch {
	case o.Kind == OrderMeet:
		if peer != nil && !b.refuse {
			e.Met(b.now, o.Peer)
		}
	case o.Kind == OrderPut:
		e.Wrote(o.TransferID, peer != nil && peer.Put(o.To, e.ReadBlocks(o.Blocks)))
	case o.Kind == OrderDone && peer != nil:
		peer.HearDone(o.TransferID)
	case o.Kind == OrderRegister && o.TransferID != "" && e.cfg.MoRIIO == MoRIIOWrite && peer != nil:
		peer.HearBlocks(b.now, Registration{Transfer: o.TransferID, Blocks: o.Blocks, Rank: e.cfg.Rank})
	default:
		return false
	}
	return true
}

// writeLeg1 is leg 1 of a transfer into d.
func writeLeg1(d *Engine, id string) *Transfer {
	null := Field[string]{Present: true, Null: true}
	t := &Transfer{
		DoRemoteDecode: true, TransferID: Has(id), EngineID: null, Host: Has(d.cfg.Host),
		RemoteBlocks: Field[RemoteBlocks]{Present: true, Null: true},
	}
	t.Handshake, t.Notify = Has(wireInt(d.cfg.Port)), Has(wireInt(d.cfg.Port))
	return t
}

// written runs leg 1 and returns the params of P.
func (b *bench) written(p, d *Engine, id string, ids []uint32) *Transfer {
	b.t.Helper()
	b.add(p, &Request{ID: "p" + id, Prompt: ids, MaxTokens: 1, IgnoreEOS: true, Transfer: writeLeg1(d, id)})
	b.settle()
	return b.take("p" + id)
}

// Prompts of every length have the text of one engine, from a prefix cache too, whichever leg comes first.
// Nothing stays held.
func TestMoRIIOWriteIsExact(t *testing.T) {
	b, p, d, solo := writePair(t, Config{BlockSize: 4})
	for i := range 40 {
		ids, id := prompt(uint64(i%7), 1+i*3), fmt.Sprint("t", i)
		want := b.plain(solo, id, ids, 6)
		if i%2 == 0 {
			same(t, id, b.decode(d, "d"+id, ids, 6, b.written(p, d, id, ids)), want)
		} else {
			early := b.written(p, d, "early"+id, ids)
			early.TransferID.V = id
			b.decode(d, "d"+id, ids, 6, early)
			b.written(p, d, id, ids)
			same(t, id, b.text["d"+id], want)
			b.later(61 * time.Second)
		}
		if s, u := p.Stats(), d.Stats(); s.Usage != 0 || u.Usage != 0 || u.Waiting != 0 {
			t.Fatalf("%s: P %+v, D %+v", id, s, u)
		}
	}
}

// Both engines answer plain requests rightly, unlike in READ mode, and a request that was preempted too.
func TestMoRIIOWriteAnswersPlainRequests(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, solo := writePair(t, Config{BlockSize: 4})
	want := b.plain(solo, "solo", ids, 6)
	same(t, "decode", b.plain(d, "d", ids, 6), want)
	same(t, "prefill", b.plain(p, "p", ids, 6), want)
}

// What vLLM does when a key of leg 1 is missing.
func TestMoRIIOWriteKeysOfLegOne(t *testing.T) {
	for key, death := range map[string]string{
		"remote_engine_id": "KeyError", "remote_block_ids": "KeyError", "remote_host": "ValueError",
		"remote_handshake_port": "ValueError", "remote_notify_port": "ValueError", "transfer_id": "",
	} {
		b, p, d, _ := writePair(t, Config{BlockSize: 4})
		leg := without(writeLeg1(d, "t"), key, false)
		b.add(p, &Request{ID: "p", Prompt: prompt(1, 22), MaxTokens: 1, Transfer: leg})
		b.settle()
		if death != "" {
			wantDead(t, p, death)
		} else if got := b.take("p").TransferID.V; got != "sidecar-p" {
			t.Errorf("without %s: the id is %q", key, got)
		}
	}
}

// What vLLM does when a key of leg 2 is missing or null: D dies, or waits for ever.
func TestMoRIIOWriteKeysOfLegTwo(t *testing.T) {
	for _, c := range []struct {
		key   string
		null  bool
		death string // "": D waits
	}{
		{key: "transfer_id"},
		{key: "remote_host", death: "ValueError"},
		{key: "remote_notify_port", death: "ValueError"},
		{key: "remote_dp_rank", null: true},
	} {
		b, p, d, _ := writePair(t, Config{BlockSize: 4})
		ids := prompt(1, 22)
		b.decode(d, "d", ids, 6, without(b.written(p, d, "t", ids), c.key, c.null))
		if c.death != "" {
			wantDead(t, d, c.death)
		} else if d.Stats().Waiting != 1 {
			t.Errorf("without %s: %+v", c.key, d.Stats())
		}
	}
}

// A leg 2 that comes after P's time waits for ever, and keeps its blocks after it was cut. Neither another
// leg 1 nor P's own write frees them.
func TestMoRIIOWriteLeaks(t *testing.T) {
	ids := prompt(1, 22)
	for late, waits := range map[time.Duration]int{59 * time.Second: 0, 61 * time.Second: 1} {
		b, p, d, _ := writePair(t, Config{BlockSize: 4})
		params := b.written(p, d, "t", ids)
		b.later(late)
		if b.decode(d, "d", ids, 6, params); d.Stats().Waiting != waits {
			t.Errorf("after %v: %+v", late, d.Stats())
		}
		b.takeAgain(p, d, "t", ids)
		if d.Abort(b.now, "d"); d.Stats().Usage > 0 != (waits > 0) {
			t.Errorf("after the cut: %+v", d.Stats())
		}
	}
	b, p, d, _ := writePair(t, Config{BlockSize: 4})
	params := b.written(p, d, "t", ids)
	params.TransferID.V = "u"
	b.decode(d, "d", ids, 6, params)
	d.Abort(b.now, "d")
	if b.written(p, d, "u", ids); d.Stats().Usage == 0 || d.Stats().Waiting != 0 {
		t.Errorf("written after the cut: %+v", d.Stats())
	}
}

// A leg 1 that comes again under its id helps a D that has told this P of its blocks, unless the transfer is
// over.
func TestMoRIIOWriteLegOneAgain(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, solo := writePair(t, Config{BlockSize: 4})
	params := b.written(p, d, "t", ids)
	p.Restart()
	p.cfg.Role = Producer
	b.decode(d, "d", ids, 6, params)
	if d.Stats().Waiting != 1 {
		t.Fatalf("a new process of P knows no prefill: %+v", d.Stats())
	}
	b.add(p, &Request{ID: "again", Prompt: ids, MaxTokens: 1, IgnoreEOS: true, Transfer: writeLeg1(d, "t")})
	b.settle()
	same(t, "rescued", b.text["d"], b.plain(solo, "solo", ids, 6))
	b.decode(d, "e", ids, 6, b.takeAgain(p, d, "t", ids))
	if d.Stats().Waiting != 1 {
		t.Errorf("an id that was used is served again: %+v", d.Stats())
	}
}

// takeAgain is written for an id that was used before.
func (b *bench) takeAgain(p, d *Engine, id string, ids []uint32) *Transfer {
	b.add(p, &Request{ID: "second", Prompt: ids, MaxTokens: 1, IgnoreEOS: true, Transfer: writeLeg1(d, id)})
	b.settle()
	return b.take("second")
}

// A longer prompt on P waits for ever; a shorter one leaves the end of D's prompt unfilled.
func TestMoRIIOWriteLengths(t *testing.T) {
	ids := prompt(1, 40)
	b, p, d, solo := writePair(t, Config{BlockSize: 4})
	b.decode(d, "long", ids[:20], 6, b.written(p, d, "t", ids))
	if d.Stats().Waiting != 1 {
		t.Errorf("a longer prompt on P: %+v", d.Stats())
	}
	got := b.decode(d, "short", ids, 6, b.written(p, d, "u", ids[:20]))
	wantWrong(t, "a shorter prompt on P", got, b.plain(solo, "solo", ids, 6))
}

// The decode leg goes to another engine than leg 1 has named: P writes into blocks of a stranger, and the leg
// waits for ever.
func TestMoRIIOWriteIntoAStranger(t *testing.T) {
	ids, other := prompt(1, 22), prompt(2, 60)
	b, p, d, solo := writePair(t, Config{BlockSize: 4})
	c := d.cfg
	c.Port = 3
	e := New(c)
	b.engines = append(b.engines, e)
	want := b.plain(solo, "solo", other, 6)
	same(t, "before", b.plain(e, "before", other, 6), want)
	b.decode(d, "d", ids, 6, b.written(p, e, "t", ids))
	if d.Stats().Waiting != 1 {
		t.Errorf("D got its blocks: %+v", d.Stats())
	}
	wantWrong(t, "the stranger", b.plain(e, "after", other, 6), want)
}

// A message that is not for an engine ends the thread that hears messages: no transfer ends any more.
func TestMoRIIOWriteDeafens(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, _ := writePair(t, Config{BlockSize: 4})
	p.HearDone("x")
	b.decode(d, "d", ids, 6, b.written(p, d, "t", ids))
	if d.Stats().Waiting != 1 {
		t.Errorf("a deaf P writes: %+v", d.Stats())
	}
	b, p, d, _ = writePair(t, Config{BlockSize: 4})
	d.Notify(b.now, "x")
	b.decode(d, "d", ids, 6, b.written(p, d, "t", ids))
	if d.Stats().Waiting != 1 {
		t.Errorf("a deaf D hears of its blocks: %+v", d.Stats())
	}
}

// P could not shake hands with D in the step of the prefill. It writes once it can: from what the blocks hold
// then.
func TestMoRIIOWriteOfAnOldHandshake(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, solo := writePair(t, Config{BlockSize: 4, Blocks: 12})
	b.refuse = true
	params := b.written(p, d, "t", ids)
	if b.decode(d, "d", ids, 6, params); d.Stats().Waiting != 1 {
		t.Fatalf("written without a handshake: %+v", d.Stats())
	}
	b.later(61 * time.Second)
	b.plain(p, "other", prompt(2, 40), 1)
	b.refuse = false
	b.written(p, d, "u", prompt(3, 4))
	wantWrong(t, "late", b.text["d"], b.plain(solo, "solo", ids, 6))
}

// D tells P nothing after an answer of another rank, unless it leads the request.
func TestMoRIIOWriteOfRanks(t *testing.T) {
	ids := prompt(1, 22)
	for leads, waits := range map[bool]int{true: 0, false: 1} {
		b, p, d, _ := writePair(t, Config{BlockSize: 4})
		p.cfg.Rank, p.cfg.DPSize = 1, 2
		p.cfg.Port++
		params := b.written(p, d, "t", ids)
		if leads {
			params.Leader = Has(Truth(true))
		}
		if b.decode(d, "d", ids, 6, params); d.Stats().Waiting != waits {
			t.Errorf("leads %v: %+v", leads, d.Stats())
		}
	}
}

// A refused leg lets P free its blocks at once; without its address only D's log has a warning.
func TestMoRIIOWriteGivesBack(t *testing.T) {
	ids := prompt(1, 22)
	for key, leases := range map[string]int{"": 0, "remote_host": 1, "transfer_id": 1} {
		b, p, d, _ := writePair(t, Config{BlockSize: 4})
		d.Reject(b.now, without(b.written(p, d, "t", ids), key, false))
		if b.settle(); p.Stats().Leases != leases || d.Dead() != nil {
			t.Errorf("without %q: P %+v, D %v", key, p.Stats(), d.Dead())
		}
	}
}

// P frees the blocks of a prefill that ends with a stop, and writes them all the same.
func TestMoRIIOWriteOfAStop(t *testing.T) {
	ids, stop := prompt(1, 22), prompt(3, 1)
	b, p, d, solo := writePair(t, Config{BlockSize: 4, Blocks: 12})
	params := b.written(p, d, "other", ids)
	params.TransferID.V = "s"
	b.later(61 * time.Second)
	leg := writeLeg1(d, "s")
	b.add(p, &Request{ID: "s", Prompt: ids, MaxTokens: 1, StopIDs: stop, Allowed: stop, Transfer: leg})
	if b.settle(); b.params["s"] != nil || p.Stats().Usage != 0 {
		t.Errorf("a stop hands over %s", b.params["s"])
	}
	b.plain(p, "more", prompt(2, 40), 1)
	wantWrong(t, "after a stop", b.decode(d, "d", ids, 6, params), b.plain(solo, "solo", ids, 6))
}
