package core

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// mooncakePair is pair with the Mooncake connector, and strict roles.
func mooncakePair(t fataler, c Config) (b *bench, p, d, solo *Engine) {
	c.Mooncake = true
	b, p, d, solo = pair(t, c)
	p.cfg.Role, d.cfg.Role = Producer, Consumer
	return b, p, d, solo
}

// obeyMooncake carries out what Mooncake asks of another engine. An engine that is unknown fails the load.
func (b *bench) obeyMooncake(e *Engine, o Order) bool {
	switch {
	case o.Kind == OrderRefuse:
		b.peer(o.Peer).Loaded(b.now, o.RemoteIDs[0], nil, o.Why)
	case o.Kind == OrderRegister && o.Bootstrap != "":
		for _, p := range b.engines {
			if p.EngineID() == o.Peer.EngineID {
				from := Peer{EngineID: e.EngineID(), Host: e.cfg.Host, Port: e.cfg.Port}
				p.Ask(b.now, Registration{ID: o.RequestID, From: from, Blocks: o.Blocks, Transfer: o.TransferID})
				return true
			}
		}
		e.Loaded(b.now, o.RequestID, nil, errors.New("remote engine_id not found from bootstrap server"))
	default:
		return false
	}
	return true
}

func legOne(id string) *Transfer { return &Transfer{DoRemoteDecode: true, TransferID: Has(id)} }

func legTwo(p *Engine, id string) *Transfer {
	return &Transfer{
		DoRemotePrefill: true, TransferID: Has(id), EngineID: Has(p.EngineID()), Bootstrap: Has("http://p:8998"),
	}
}

// one runs leg 1 of a transfer. Its answer has no params.
func (b *bench) one(p *Engine, name, id string, ids []uint32) {
	b.t.Helper()
	b.add(p, &Request{ID: name, Prompt: ids, MaxTokens: 1, Transfer: legOne(id)})
	b.settle()
	if b.params[name] != nil {
		b.t.Fatalf("leg 1 has params: %s", b.params[name])
	}
}

// A prompt has the text of one engine, whichever leg comes first, and nothing stays held.
func TestMooncakeIsExact(t *testing.T) {
	b, p, d, solo := mooncakePair(t, Config{BlockSize: 4})
	for i := range 40 {
		ids, id := prompt(uint64(i%7), 1+i*3), fmt.Sprint("t", i)
		if i%2 == 0 {
			b.one(p, "p"+id, id, ids)
			b.decode(d, "d"+id, ids, 6, legTwo(p, id))
		} else {
			b.decode(d, "d"+id, ids, 6, legTwo(p, id))
			b.one(p, "p"+id, id, ids)
		}
		same(t, id, b.text["d"+id], b.plain(solo, id, ids, 6))
		if s, u := p.Stats(), d.Stats(); s.Usage != 0 || u.Usage != 0 || u.Waiting != 0 {
			t.Fatalf("%s: P %+v, D %+v", id, s, u)
		}
	}
	if d.Stats().ExternalHits == 0 || len(p.leasing.mooncake.sends)+len(p.leasing.mooncake.tasks) != 0 {
		t.Errorf("D %+v, P %+v", d.Stats(), p.leasing.mooncake)
	}
}

// later lets time pass on every engine.
func (b *bench) later(d time.Duration) {
	b.now += d
	b.settle()
}

// A leg 2 without a leg 1 waits for 480 s, and then fails. A leg 1 that comes in time frees its blocks, also
// when it has been cut.
func TestMooncakeStrandsFor480Seconds(t *testing.T) {
	ids := prompt(1, 22)
	for _, left := range []bool{false, true} {
		for _, rescued := range []bool{false, true} {
			b, p, d, solo := mooncakePair(t, Config{BlockSize: 4})
			b.decode(d, "d", ids, 6, legTwo(p, "t"))
			if left {
				d.Abort(b.now, "d")
			}
			b.later(479 * time.Second)
			if d.Stats().Usage == 0 || len(b.text["d"]) > 0 {
				t.Fatalf("D does not wait: %+v", d.Stats())
			}
			if rescued {
				b.one(p, "p", "t", ids)
			} else {
				b.later(2 * time.Second)
			}
			if d.Stats().Usage != 0 || p.Stats().Usage != 0 {
				t.Errorf("left %v, rescued %v: D %+v, P %+v", left, rescued, d.Stats(), p.Stats())
			}
			switch {
			case left:
			case rescued:
				same(t, "rescued", b.text["d"], b.plain(solo, "solo", ids, 6))
			case b.ends["d"].Reason != FinishError:
				t.Errorf("D ended as %v", b.ends["d"].Reason)
			}
		}
	}
}

// P drops what a stop or a cut ends, and its entry: the leg that waits for it waits on, and a second leg 1
// helps no more.
func TestMooncakeStopStrands(t *testing.T) {
	ids := prompt(1, 22)
	for _, cut := range []bool{false, true} {
		b, p, d, _ := mooncakePair(t, Config{BlockSize: 4})
		b.decode(d, "d", ids, 6, legTwo(p, "t"))
		leg := &Request{ID: "p", Prompt: ids, MaxTokens: 1, Transfer: legOne("t")}
		if !cut {
			leg.StopIDs = prompt(3, 1)
			leg.Allowed = leg.StopIDs
		}
		b.add(p, leg)
		if cut {
			p.Abort(b.now, "p")
		}
		b.settle()
		if !cut && b.ends["p"].Reason != FinishStop {
			t.Fatalf("leg 1 ended as %v", b.ends["p"].Reason)
		}
		b.one(p, "again", "t", ids)
		if d.Stats().Waiting != 1 || p.Stats().Leases != 1 {
			t.Errorf("cut %v: D %+v, P %+v", cut, d.Stats(), p.Stats())
		}
		b.later(481 * time.Second)
		if d.Stats().Usage != 0 || p.Stats().Usage != 0 || b.ends["d"].Reason != FinishError {
			t.Errorf("cut %v: D %+v, P %+v", cut, d.Stats(), p.Stats())
		}
	}
}

// Twenty legs that wait take all tasks of P: no other transfer goes on.
func TestMooncakeWaitingLegsStopAllTransfers(t *testing.T) {
	for _, waiting := range []int{19, 20} {
		b, p, d, _ := mooncakePair(t, Config{BlockSize: 4})
		for i := range waiting {
			b.decode(d, fmt.Sprint("w", i), prompt(uint64(i), 5), 6, legTwo(p, fmt.Sprint("w", i)))
		}
		ids := prompt(100, 22)
		b.one(p, "p", "good", ids)
		b.decode(d, "d", ids, 6, legTwo(p, "good"))
		if done := len(b.text["d"]) > 0; done != (waiting < mooncakeTasks) {
			t.Errorf("beside %d waiting legs a pair is answered: %v", waiting, done)
		}
		b.later(481 * time.Second)
		b.later(481 * time.Second) // the good leg's own time: the blocks of its prefill have gone meanwhile
		if d.Stats().Usage != 0 || p.Stats().Usage != 0 {
			t.Errorf("D %+v, P %+v", d.Stats(), p.Stats())
		}
	}
}

// Two transfers of one id are one to P.
func TestMooncakeMixesTransfersOfOneID(t *testing.T) {
	b, p, d, solo := mooncakePair(t, Config{BlockSize: 4})
	one, two := prompt(1, 22), prompt(2, 22)
	b.decode(d, "one", one, 6, legTwo(p, "t"))
	b.decode(d, "two", two, 6, legTwo(p, "t"))
	b.one(p, "p", "t", two)
	wantWrong(t, "the first", b.text["one"], b.plain(solo, "solo", one, 6))
	b, p, _, _ = mooncakePair(t, Config{BlockSize: 4})
	b.one(p, "p1", "t", one)
	b.one(p, "p2", "t", two)
	b.later(time.Hour)
	if p.Stats().Leases != 1 {
		t.Errorf("want the blocks of the first to be lost: %+v", p.Stats())
	}
}

// A missing key makes D wait for ever, whether or not the client leaves. In a leg that is refused it ends D.
func TestMooncakeKeys(t *testing.T) {
	ids := prompt(1, 22)
	for name, change := range map[string]func(*Transfer){
		"transfer_id":           func(x *Transfer) { x.TransferID = Field[string]{} },
		"remote_engine_id":      func(x *Transfer) { x.EngineID = Field[string]{} },
		"remote_bootstrap_addr": func(x *Transfer) { x.Bootstrap = Field[string]{} },
	} {
		b, p, d, _ := mooncakePair(t, Config{BlockSize: 4})
		b.decode(d, "d", ids, 5, doctored(legTwo(p, "t"), change))
		b.later(time.Hour)
		d.Abort(b.now, "d")
		b.settle()
		if d.Stats().Usage == 0 || d.Dead() != nil {
			t.Errorf("without %s D does not leak: %+v, %v", name, d.Stats(), d.Dead())
		}
		d.Reject(b.now, doctored(legTwo(p, "t"), change))
		if b.settle(); name == "transfer_id" {
			if d.Dead() != nil {
				t.Errorf("without %s: %v", name, d.Dead())
			}
			continue
		}
		wantDead(t, d, name)
	}
	b, p, d, _ := mooncakePair(t, Config{BlockSize: 4})
	b.decode(d, "d", ids, 5, doctored(legTwo(p, "t"), func(x *Transfer) { x.EngineID.V = "nobody" }))
	if b.ends["d"].Reason != FinishError {
		t.Errorf("an unknown engine: %v", b.ends["d"].Reason)
	}
	b.one(p, "p", "", ids)
	if p.Stats().Usage != 0 {
		t.Errorf("P keeps blocks without a transfer id: %+v", p.Stats())
	}
}

// A refused leg lets P free its blocks, before or after P has finished.
func TestMooncakeGivesBack(t *testing.T) {
	for _, before := range []bool{false, true} {
		b, p, d, _ := mooncakePair(t, Config{BlockSize: 4})
		if before {
			d.Reject(b.now, legTwo(p, "t"))
			b.settle()
		}
		b.one(p, "p", "t", prompt(1, 22))
		if !before {
			d.Reject(b.now, legTwo(p, "t"))
			b.settle()
		}
		if s := p.Stats(); s.Leases != 0 || s.Usage != 0 {
			t.Errorf("before %v: %+v", before, s)
		}
	}
}

// A leg of the other role ends its engine. A longer prompt on D fails, a shorter one is answered wrongly. A P
// that is gone is waited for a minute longer.
func TestMooncakeStrictness(t *testing.T) {
	ids := prompt(1, 25)
	b, p, d, solo := mooncakePair(t, Config{BlockSize: 4})
	b.one(p, "p1", "longer", ids[:20])
	b.decode(d, "longer", ids, 5, legTwo(p, "longer"))
	if b.ends["longer"].Reason != FinishError {
		t.Errorf("the longer prompt ends as %v", b.ends["longer"].Reason)
	}
	b.one(p, "p2", "shorter", ids)
	wantWrong(t, "the shorter", b.decode(d, "shorter", ids[:20], 5, legTwo(p, "shorter")),
		b.plain(solo, "solo", ids[:20], 5))
	other := prompt(9, 25)
	b.decode(d, "dead", other, 5, legTwo(p, "dead"))
	p.Restart()
	b.later(481 * time.Second)
	if b.ends["dead"].Finished {
		t.Error("D knows that P is gone")
	}
	if b.later(60 * time.Second); b.ends["dead"].Reason != FinishError {
		t.Error("D waits for ever for a P that is gone")
	}
	b.add(p, &Request{ID: "x", Prompt: ids, MaxTokens: 1, Transfer: legTwo(p, "x")})
	b.settle()
	wantDead(t, p, "is_kv_producer")
	b.add(d, &Request{ID: "y", Prompt: ids, MaxTokens: 1, Transfer: legOne("y")})
	b.settle()
	wantDead(t, d, "is_kv_consumer")
}
