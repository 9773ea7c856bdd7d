package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// readPair is pair with MoRI-IO in READ mode, a producer and a consumer.
func readPair(t fataler, c Config) (b *bench, p, d, solo *Engine) {
	c.MoRIIO = MoRIIORead
	b, p, d, solo = pair(t, c)
	p.cfg.Role, d.cfg.Role = Producer, Consumer
	return b, p, d, solo
}

// toD runs leg 1 of a transfer and returns the params of P.
func (b *bench) toD(p *Engine, id string, ids []uint32) *Transfer {
	b.t.Helper()
	b.add(p, &Request{ID: "p" + id, Prompt: ids, MaxTokens: 1, IgnoreEOS: true, Transfer: legOne(id)})
	b.settle()
	return b.take("p" + id)
}

// without returns a copy of a transfer that lacks a key, or has null there.
func without(t *Transfer, key string, null bool) *Transfer {
	c := *t
	for name, field := range map[string]any{
		"transfer_id": &c.TransferID, "remote_engine_id": &c.EngineID, "remote_block_ids": &c.RemoteBlocks,
		"remote_host": &c.Host, "remote_handshake_port": &c.Handshake, "remote_notify_port": &c.Notify,
		"remote_dp_rank": &c.DPRank, "remote_dp_size": &c.DPSize, "remote_dp_size_local": &c.DPSizeLocal,
	} {
		if name != key {
			continue
		}
		switch f := field.(type) {
		case *Field[string]:
			*f = Field[string]{Present: null, Null: null}
		case *Field[wireInt]:
			*f = Field[wireInt]{Present: null, Null: null}
		case *Field[RemoteBlocks]:
			*f = Field[RemoteBlocks]{Present: null, Null: null}
		}
	}
	return &c
}

// Prompts of every length have the text of one engine, from a prefix cache too, and nothing stays held.
func TestMoRIIOReadIsExact(t *testing.T) {
	b, p, d, solo := readPair(t, Config{BlockSize: 4})
	for i := range 40 {
		ids, id := prompt(uint64(i%7), 1+i*3), fmt.Sprint("t", i)
		same(t, id, b.decode(d, "d"+id, ids, 6, b.toD(p, id, ids)), b.plain(solo, id, ids, 6))
		if s, u := p.Stats(), d.Stats(); s.Usage != 0 || u.Usage != 0 || u.Waiting != 0 {
			t.Fatalf("%s: P %+v, D %+v", id, s, u)
		}
	}
	if d.Stats().NixlTransfers < 39 || len(p.leasing.moriio.sends)+len(p.leasing.moriio.early) != 0 {
		t.Errorf("D %+v, P %+v", d.Stats(), p.leasing.moriio)
	}
}

// A consumer answers every plain request from blocks that nobody has filled, and its cache keeps them. A
// producer answers plain requests rightly.
func TestMoRIIOReadAnswersPlainRequestsFromGarbage(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, solo := readPair(t, Config{BlockSize: 4})
	want := b.plain(solo, "solo", ids, 6)
	wantWrong(t, "plain", b.plain(d, "plain", ids, 6), want)
	if d.Stats().PrefixHits != 0 || d.Stats().ExternalHits != 21 {
		t.Errorf("D promised itself %+v", d.Stats())
	}
	wantWrong(t, "cached", b.plain(d, "again", ids, 6), want)
	if d.Stats().PrefixHits == 0 {
		t.Error("the wrong blocks are not cached")
	}
	same(t, "producer", b.plain(p, "whole", ids, 6), want)
	p.cfg.Role = Both
	wantWrong(t, "kv_both", b.plain(p, "both", prompt(2, 22), 6), b.plain(solo, "solo2", prompt(2, 22), 6))
}

// What vLLM does when a key of leg 2 is missing or null.
func TestMoRIIOReadKeys(t *testing.T) {
	for _, c := range []struct {
		key   string
		null  bool
		death string // "": the text is wrong
	}{
		{key: "remote_engine_id"},
		{key: "remote_block_ids"},
		{key: "remote_block_ids", null: true},
		{key: "remote_host", death: "ValueError"},
		{key: "remote_handshake_port", death: "ValueError"},
		{key: "remote_notify_port", null: true, death: "ValueError"},
		{key: "remote_dp_rank", null: true, death: "TypeError"},
		{key: "remote_dp_size_local", null: true, death: "TypeError"},
	} {
		b, p, d, solo := readPair(t, Config{BlockSize: 4})
		ids := prompt(1, 22)
		params := b.toD(p, "t", ids)
		b.add(d, &Request{ID: "d", Prompt: ids, MaxTokens: 6, Transfer: without(params, c.key, c.null)})
		b.settle()
		if c.death != "" {
			wantDead(t, d, c.death)
			continue
		}
		if wantWrong(t, c.key, b.text["d"], b.plain(solo, "solo", ids, 6)); p.Stats().Leases != 1 {
			t.Errorf("without %s P frees the blocks", c.key)
		}
	}
}

// A longer prompt on D ends it, or its last block is garbage; a shorter one is read from wrong places.
func TestMoRIIOReadLengths(t *testing.T) {
	ids := prompt(1, 40)
	for n, death := range map[int]bool{40: true, 25: false, 12: false} {
		b, p, d, solo := readPair(t, Config{BlockSize: 4})
		params := b.toD(p, "t", ids[:21])
		b.add(d, &Request{ID: "d", Prompt: ids[:n], MaxTokens: 6, Transfer: params})
		b.settle()
		if death {
			wantDead(t, d, "exceed")
			continue
		}
		wantWrong(t, fmt.Sprint(n), b.text["d"], b.plain(solo, "solo", ids[:n], 6))
	}
}

// P keeps blocks for 60 s, which nothing renews. Afterwards a leg 2 reads what is there then.
func TestMoRIIOReadLease(t *testing.T) {
	for late, wrong := range map[time.Duration]bool{59 * time.Second: false, 61 * time.Second: true} {
		b, p, d, solo := readPair(t, Config{BlockSize: 4, Blocks: 12})
		ids := prompt(1, 22)
		params := b.toD(p, "t", ids)
		b.later(late)
		if wrong {
			b.plain(p, "other", prompt(2, 40), 1)
		}
		got, want := b.decode(d, "d", ids, 6, params), b.plain(solo, "solo", ids, 6)
		if wrong {
			wantWrong(t, "late", got, want)
		} else {
			same(t, "in time", got, want)
		}
	}
}

// A refused leg, or one that leaves before it is scheduled, lets P free its blocks. Without a key it ends D.
func TestMoRIIOReadGivesBack(t *testing.T) {
	ids := prompt(1, 22)
	for _, key := range []string{"", "transfer_id", "remote_engine_id", "remote_block_ids", "remote_host"} {
		b, p, d, _ := readPair(t, Config{BlockSize: 4})
		d.Reject(b.now, without(b.toD(p, "t", ids), key, false))
		if b.settle(); key != "" {
			wantDead(t, d, "Error")
			continue
		}
		if s := p.Stats(); s.Leases != 0 || s.Usage != 0 {
			t.Errorf("P %+v", s)
		}
		params := b.toD(p, "u", ids)
		b.add(d, &Request{ID: "d", Prompt: ids, MaxTokens: 6, Transfer: params})
		d.Abort(b.now, "d")
		if b.settle(); p.Stats().Usage != 0 || d.Stats().Usage != 0 {
			t.Errorf("P %+v, D %+v", p.Stats(), d.Stats())
		}
	}
}

// P hands over only what ends at its length. It invents an id that is missing. A second request of one id
// takes the message of the first.
func TestMoRIIOReadLegOne(t *testing.T) {
	ids := prompt(1, 22)
	b, p, d, _ := readPair(t, Config{BlockSize: 4})
	stop := prompt(3, 1)
	b.add(p, &Request{ID: "s", Prompt: ids, MaxTokens: 1, StopIDs: stop, Allowed: stop, Transfer: legOne("s")})
	if b.settle(); b.params["s"] != nil || p.Stats().Usage != 0 {
		t.Errorf("a stop hands over %s", b.params["s"])
	}
	var got map[string]any
	b.toD(p, "", ids)
	if err := json.Unmarshal(b.params["p"], &got); err != nil || got["transfer_id"] != "sidecar-p" {
		t.Errorf("%v, %v", got, err)
	}
	one := b.toD(p, "same", ids)
	b.add(p, &Request{ID: "two", Prompt: prompt(2, 22), MaxTokens: 1, Transfer: legOne("same")})
	b.settle()
	b.decode(d, "d", ids, 6, one)
	if p.known.held["psame"] == nil || p.known.held["two"] != nil {
		t.Error("the message of the first request has freed it")
	}
}

// A request that is preempted on D goes on from blocks that nobody has filled.
func TestMoRIIOReadForgetsPreempted(t *testing.T) {
	b, p, d, solo := readPair(t, Config{BlockSize: 4, Blocks: 16})
	wrong := 0
	params := []*Transfer{b.toD(p, "0", prompt(0, 24)), b.toD(p, "1", prompt(1, 24))}
	for i, id := range []string{"0", "1"} {
		b.add(d, &Request{ID: id, Prompt: prompt(uint64(i), 24), MaxTokens: 24, Transfer: params[i]})
	}
	b.settle()
	for i, id := range []string{"0", "1"} {
		if !slices.Equal(b.text[id], b.plain(solo, "solo"+id, prompt(uint64(i), 24), 24)) {
			wrong++
		}
	}
	if d.Stats().Preemptions == 0 || wrong != 1 {
		t.Errorf("%d preemptions, %d wrong answers", d.Stats().Preemptions, wrong)
	}
}
