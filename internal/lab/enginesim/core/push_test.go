package core

import (
	"fmt"
	"testing"
	"time"
)

// pushPair is pair with the push connector.
func pushPair(t fataler, c Config) (b *bench, p, d, solo *Engine) {
	c.Push = true
	return pair(t, c)
}

// A pushed prompt gets the same text as on one engine, whichever leg arrives first, and no block stays held.
func TestPushIsExact(t *testing.T) {
	b, p, d, solo := pushPair(t, Config{BlockSize: 4})
	for i := range 60 {
		ids := prompt(uint64(i%7), 1+i*3)
		name := fmt.Sprint("cmpl-r", i, "-0")
		want := b.plain(solo, name, ids, 6)
		if i%2 == 0 {
			params := b.prefill(p, name+"-aaaaaaaa", ids)
			same(t, name, b.decode(d, name+"-bbbbbbbb", ids, 6, params), want)
			continue
		}
		params := b.prefill(p, fmt.Sprint("other", i), ids)
		params.RequestID.V = name + "-aaaaaaaa"
		b.decode(d, name+"-bbbbbbbb", ids, 6, params) // before P's prefill
		b.prefill(p, name+"-aaaaaaaa", ids)
		b.settle()
		same(t, name, b.text[name+"-bbbbbbbb"], want)
		b.now += time.Minute // the unused lease expires
		b.settle()
	}
	if s := d.Stats(); s.Usage != 0 || s.Waiting != 0 || s.ExternalHits == 0 || s.NixlTransfers != 0 {
		t.Errorf("D at the end: %+v", s)
	}
	if s := p.Stats(); s.Usage != 0 || s.NixlTransfers != 60 {
		t.Errorf("P at the end: %+v", s)
	}
}

// stranded returns a pair whose D waits for blocks that P has reused, because the lease had expired.
func stranded(t *testing.T, ids []uint32) (b *bench, p, d, solo *Engine) {
	b, p, d, solo = pushPair(t, Config{BlockSize: 4})
	params := b.prefill(p, "x-00000001", ids)
	b.now = 31 * time.Second
	p.Step(b.now)
	if s := p.Stats(); s.Leases != 0 || s.NixlExpired != 1 {
		t.Fatalf("P: %+v", s)
	}
	b.decode(d, "x-00000002", ids, 6, params)
	b.now += time.Hour
	b.settle()
	if s := d.Stats(); s.Waiting != 1 || s.FetchInProgress != 1 || s.Usage == 0 {
		t.Fatalf("want a waiting request: %+v", s)
	}
	return b, p, d, solo
}

// A registration without a prefill blocks its request for ever. If the client disconnects, the blocks stay
// held. Another prefill with the same id frees them, or lets the request continue. A shorter prefill frees
// nothing, and uses up the registration.
func TestPushStrandsAndIsRescued(t *testing.T) {
	ids := prompt(1, 22)
	for _, left := range []bool{false, true} {
		b, p, d, solo := stranded(t, ids)
		if left {
			d.Abort(b.now, "x-00000002")
			b.settle()
			if s := d.Stats(); s.Waiting+s.Running+s.FetchInProgress != 0 || s.Usage == 0 {
				t.Fatalf("want no sign but the usage: %+v", s)
			}
		}
		b.prefill(p, "x-00000003", ids)
		if !left {
			same(t, "rescued", b.text["x-00000002"], b.plain(solo, "solo", ids, 6))
		}
		if d.Stats().Usage != 0 || p.Stats().Usage != 0 {
			t.Errorf("disconnected %v: D %+v, P %+v", left, d.Stats(), p.Stats())
		}
	}
	b, p, d, _ := stranded(t, ids)
	b.prefill(p, "x-00000003", prompt(2, 4))
	b.prefill(p, "x-00000004", ids)
	if d.Stats().Waiting != 1 {
		t.Errorf("rescued after a shorter prompt: %+v", d.Stats())
	}
}

// P cannot distinguish two requests with one id: each gets the blocks of the other.
func TestPushMixesRequestsOfOneID(t *testing.T) {
	b, p, d, solo := pushPair(t, Config{BlockSize: 4})
	one, two := prompt(1, 22), prompt(2, 22)
	first := b.prefill(p, "cmpl-x-0-00000001", one)
	second := b.prefill(p, "cmpl-x-0-00000002", two)
	wantWrong(t, "the second", b.decode(d, "cmpl-x-0-00000003", two, 6, second), b.plain(solo, "s2", two, 6))
	wantWrong(t, "the first", b.decode(d, "cmpl-x-0-00000004", one, 6, first), b.plain(solo, "s1", one, 6))
}

// A missing key kills the engine. With pull, the request would only wait.
func TestPushKeysThatKill(t *testing.T) {
	for name, change := range map[string]func(*Transfer){
		"remote_engine_id":  func(x *Transfer) { x.EngineID = Field[string]{} },
		"remote_request_id": func(x *Transfer) { x.RequestID = Field[string]{} },
		"remote_host":       func(x *Transfer) { x.Host = Field[string]{} },
		"remote_port":       func(x *Transfer) { x.Port.Present = false },
		"tp_size":           func(x *Transfer) { x.TPSize = Field[int]{} },
	} {
		b, p, d, _ := pushPair(t, Config{BlockSize: 4})
		ids := prompt(1, 22)
		b.decode(d, "r-00000002", ids, 5, doctored(b.prefill(p, "r-00000001", ids), change))
		wantDead(t, d, name)
	}
	b, p, d, solo := pushPair(t, Config{BlockSize: 4}) // D needs no block ids
	ids := prompt(1, 22)
	params := doctored(b.prefill(p, "r-00000001", ids), func(x *Transfer) {
		x.RemoteBlocks = Field[RemoteBlocks]{}
	})
	same(t, "without block ids", b.decode(d, "r-00000002", ids, 5, params), b.plain(solo, "solo", ids, 5))
}

// A refused leg frees nothing on P: the lease expires. A longer prompt on D waits for ever. A shorter prompt
// gets a wrong answer.
func TestPushGivesNothingBack(t *testing.T) {
	b, p, d, solo := pushPair(t, Config{BlockSize: 4})
	ids := prompt(1, 25)
	d.Reject(b.now, b.prefill(p, "refused", ids))
	b.settle()
	if p.Stats().Leases != 1 || d.Dead() != nil {
		t.Errorf("P %+v, D's cause of death %v", p.Stats(), d.Dead())
	}
	if b.decode(d, "a-00000002", ids, 5, b.prefill(p, "a-00000001", ids[:20])); d.Stats().Waiting != 1 {
		t.Errorf("want the longer prompt waiting: %+v", d.Stats())
	}
	got := b.decode(d, "b-00000002", ids[:20], 5, b.prefill(p, "b-00000001", ids))
	wantWrong(t, "the shorter", got, b.plain(solo, "solo", ids[:20], 5))
	params := b.prefill(p, "c-00000001", ids)
	b.refuse = true
	b.decode(d, "c-00000002", ids, 5, params)
	if end := b.ends["c-00000002"]; end.Reason != FinishError {
		t.Errorf("a registration that cannot be sent ends with %v", end.Reason)
	}
}
