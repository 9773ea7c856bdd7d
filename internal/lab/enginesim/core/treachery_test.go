package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// doctored changes correct params before D gets them.
func doctored(t *Transfer, change func(*Transfer)) *Transfer {
	change(t)
	return t
}

func TestParamsThatKill(t *testing.T) {
	absent := func(x *Transfer) { x.RemoteBlocks = Field[RemoteBlocks]{} }
	cases := []struct {
		name   string
		change func(*Transfer)
		want   string
	}{
		{"no block ids", absent, "num_external_tokens == 0"},
		{
			"null block ids", func(x *Transfer) { x.RemoteBlocks = Field[RemoteBlocks]{Present: true, Null: true} },
			"num_external_tokens == 0",
		},
		{"empty block ids", func(x *Transfer) { x.RemoteBlocks.V.Groups = nil }, "num_external_tokens == 0"},
		{
			"nothing but do_remote_prefill", func(x *Transfer) { *x = Transfer{DoRemotePrefill: true} },
			"num_external_tokens == 0",
		},
		{"one empty group", func(x *Transfer) { x.RemoteBlocks.V.Groups = [][]int{{}} }, "num_decode_blocks"},
		{
			"one block too few", func(x *Transfer) { g := x.RemoteBlocks.V.Groups; g[0] = g[0][1:] },
			"num_decode_blocks",
		},
		{"flat list", func(x *Transfer) { x.RemoteBlocks.V = RemoteBlocks{Broken: true} }, "TypeError"},
		{
			"two groups", func(x *Transfer) { x.RemoteBlocks.V.Groups = append(x.RemoteBlocks.V.Groups, []int{1}) },
			"transfer_groups",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, p, d, _ := pair(t, Config{BlockSize: 4})
			ids := prompt(1, 22)
			params := doctored(b.prefill(p, "p", ids), c.change)
			b.add(d, &Request{ID: "victim", Prompt: prompt(2, 5), MaxTokens: 100})
			d.Step(0)
			b.decode(d, "r", ids, 5, params)
			wantDead(t, d, c.want)
			if len(b.ends) != 1 {
				t.Errorf("ended: %v, want the prefill only", b.ends)
			}
			if err := d.Add(0, &Request{ID: "after", Prompt: ids}); err != ErrDead {
				t.Errorf("Add: %v, want %v", err, ErrDead)
			}
			if d.ReadBlocks([]int{1}) != nil {
				t.Error("a dead engine returns blocks")
			}
			d.Restart()
			if d.Dead() != nil || d.EngineID() == "d" || d.Stats().Usage != 0 {
				t.Errorf("after a restart: dead %v, id %s", d.Dead(), d.EngineID())
			}
		})
	}
}

func wantDead(t *testing.T, e *Engine, why string) {
	t.Helper()
	if err := e.Dead(); err == nil || !strings.Contains(err.Error(), why) {
		t.Fatalf("cause of death is %v, want %q", err, why)
	}
	if st := e.Step(0); !st.Idle || len(st.Outputs)+len(st.Events)+len(st.Orders) > 0 {
		t.Errorf("a dead engine steps: %+v", st)
	}
}

// If the prompt on D is longer than on P by a block, D crashes.
func TestLongerPromptOnDecodeKills(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 25)
	b.decode(d, "r", ids, 5, b.prefill(p, "p", ids[:22]))
	wantDead(t, d, "num_decode_blocks")
}

// If the prompt on D is shorter, D reads the tail of P's list: status 200 with a wrong text, and wrong
// texts for all later requests with that prefix.
func TestShorterPromptOnDecodeIsWrongAndPoisons(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 30)
	got := b.decode(d, "r", ids[:22], 8, b.prefill(p, "p", ids))
	wantWrong(t, "text", got, b.plain(solo, "solo", ids[:22], 8))
	wantPoison(t, b, d, solo, ids[:22])
}

func wantWrong(t *testing.T, what string, got, right []uint32) {
	t.Helper()
	if slices.Equal(got, right) {
		t.Errorf("%s is right, want a wrong text: %v", what, got)
	}
	if len(got) != len(right) {
		t.Errorf("%s has %d tokens, want %d as in a right answer", what, len(got), len(right))
	}
}

// wantPoison sends d the same prompt and a prompt with the same first blocks, without a split. Both must get
// wrong texts.
func wantPoison(t *testing.T, b *bench, d, solo *Engine, ids []uint32) {
	t.Helper()
	wantWrong(t, "plain text of the same prompt", b.plain(d, "same", ids, 6), b.plain(solo, "same solo", ids, 6))
	other := append(slices.Clone(ids[:12]), prompt(77, 9)...)
	wantWrong(t, "text of a prompt that shares the prefix", b.plain(d, "other", other, 6),
		b.plain(solo, "other solo", other, 6))
	fresh := prompt(78, 21)
	same(t, "text of another prompt", b.plain(d, "fresh", fresh, 6), b.plain(solo, "fresh solo", fresh, 6))
}

// churn uses every block of p for other prompts.
func churn(b *bench, p *Engine) {
	for i := range 4 {
		b.plain(p, fmt.Sprintf("churn %s %d", p.cfg.EngineID, i), prompt(uint64(1000+i), p.cfg.MaxModelLen-1), 1)
	}
}

func TestParamsUsedTwice(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4, Blocks: 64, MaxModelLen: 240})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	right := b.plain(solo, "solo", ids, 8)
	same(t, "first use", b.decode(d, "first", ids, 8, b.take("p")), right)
	churn(b, p)
	churn(b, d) // otherwise D reads only the blocks that it lacks
	wantWrong(t, "second use", b.decode(d, "second", ids, 8, b.take("p")), right)
	if s := d.Stats(); s.NixlFailed != 0 || s.NixlTransfers != 2 {
		t.Errorf("D saw %d failures in %d transfers, want 0 in 2: no counter shows the mistake",
			s.NixlFailed, s.NixlTransfers)
	}
	if s := p.Stats(); s.NixlNotifiedLate != 0 {
		t.Errorf("P, which has not stepped, counted %d late notifications", s.NixlNotifiedLate)
	}
	b.plain(p, "step", prompt(3, 4), 1)
	if s := p.Stats(); s.NixlNotifiedLate != 1 {
		t.Errorf("P counted %d late notifications, want 1", s.NixlNotifiedLate)
	}
	wantPoison(t, b, d, solo, ids)
}

// If the blocks were not reused by chance, a second use gives the right text. That is how the mistake
// stays hidden.
func TestParamsUsedTwiceWithLuck(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4, Blocks: 64, MaxModelLen: 240})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	b.decode(d, "first", ids, 8, b.take("p"))
	churn(b, d)
	same(t, "second use", b.decode(d, "second", ids, 8, b.take("p")), b.plain(solo, "solo", ids, 8))
}

func TestLeaseExpires(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4, Blocks: 64, MaxModelLen: 240})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	if s := p.Stats(); s.Leases != 1 || s.FreeBlocks != 63-6 {
		t.Fatalf("leased: %+v", s)
	}
	if got := p.Step(b.now).Wake; got != 30*time.Second {
		t.Errorf("wake at %v, want at the lease's end", got)
	}
	b.now = 30*time.Second - 1
	p.Step(b.now)
	if p.Stats().Leases != 1 {
		t.Error("the lease ended early")
	}
	b.now = 30 * time.Second
	p.Step(b.now)
	if s := p.Stats(); s.Leases != 0 || s.Usage != 0 || s.NixlExpired != 1 {
		t.Errorf("after the lease: %+v", s)
	}
	churn(b, p)
	wantWrong(t, "text", b.decode(d, "r", ids, 8, b.take("p")), b.plain(solo, "solo", ids, 8))
	wantPoison(t, b, d, solo, ids)
}

func TestHeartbeats(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4, Blocks: 64, MaxModelLen: 240, MaxSeqs: 1})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	b.now = 25 * time.Second
	b.delay = func() time.Duration { return time.Hour } // occupies D's only slot
	b.add(d, &Request{ID: "slot", Prompt: prompt(2, 5), MaxTokens: 200})
	d.Step(b.now)
	b.add(d, &Request{ID: "r", Prompt: ids, MaxTokens: 3, Transfer: b.take("p")})
	beats := 0
	for range 60 { // a minute is twice the lease
		st := d.Step(b.now)
		for _, o := range st.Orders {
			if o.Kind != OrderHeartbeat || !slices.Equal(o.RemoteIDs, []string{"p"}) {
				t.Fatalf("order %+v", o)
			}
			beats++
			p.Heartbeat(b.now, o.RemoteIDs)
		}
		p.Step(b.now)
		if st.Wake == 0 {
			t.Fatal("no wake for the next heartbeat")
		}
		b.now += time.Second
	}
	if beats != 12 {
		t.Errorf("%d heartbeats in a minute, want one every 5 s", beats)
	}
	if p.Stats().Leases != 1 {
		t.Fatal("the lease expired in spite of heartbeats")
	}
	d.Abort(b.now, "slot")
	b.delay = nil
	b.settle()
	same(t, "text", b.text["r"], b.plain(solo, "solo", ids, 3))
	if d.leasing.beating != 0 {
		t.Errorf("%d requests still send heartbeats", d.leasing.beating)
	}
}

// The lease ends at max(old, now + 2/3 lease): a heartbeat never shortens a lease.
func TestHeartbeatExtendsOnly(t *testing.T) {
	b, p, _, _ := pair(t, Config{BlockSize: 4})
	b.prefill(p, "p", prompt(1, 9))
	for _, c := range []struct{ at, want time.Duration }{
		{5 * time.Second, 30 * time.Second},
		{10 * time.Second, 30 * time.Second},
		{25 * time.Second, 45 * time.Second},
	} {
		p.Heartbeat(c.at, []string{"p", "unknown"})
		if got := p.known.held["p"].lease.expiry; got != c.want {
			t.Errorf("heartbeat at %v: lease ends %v, want %v", c.at, got, c.want)
		}
	}
}

func TestNoHeartbeatWithoutTPSize(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 9)
	tr := b.prefill(p, "p", ids)
	tr.TPSize = Field[int]{}
	b.add(d, &Request{ID: "r", Prompt: ids, Transfer: tr})
	for _, o := range d.Step(0).Orders {
		if o.Kind == OrderHeartbeat {
			t.Error("heartbeat without tp_size")
		}
	}
}

// A missing key hangs the request for ever. Its blocks never become free, and the prefix cache can never
// be reset again.
func TestMissingKeyHangs(t *testing.T) {
	for name, change := range map[string]func(*Transfer){
		"remote_engine_id":  func(x *Transfer) { x.EngineID = Field[string]{} },
		"remote_request_id": func(x *Transfer) { x.RequestID = Field[string]{} },
		"remote_host":       func(x *Transfer) { x.Host = Field[string]{} },
		"remote_port":       func(x *Transfer) { x.Port.Present = false },
	} {
		t.Run(name, func(t *testing.T) {
			b, p, d, solo := pair(t, Config{BlockSize: 4})
			ids := prompt(1, 22)
			tr := doctored(b.prefill(p, "p", ids), change)
			b.decode(d, "r", ids, 5, tr)
			b.now += time.Hour
			b.settle()
			s := d.Stats()
			if _, ended := b.ends["r"]; ended || d.Dead() != nil || s.WaitingDeferred != 1 ||
				s.FreeBlocks != s.Blocks-1-6 {
				t.Fatalf("want a hanging request with 6 blocks: ended %v, dead %v, %+v", ended, d.Dead(), s)
			}
			d.Abort(b.now, "r")
			b.settle()
			if s := d.Stats(); s.FreeBlocks != s.Blocks-1-6 || s.Waiting != 0 {
				t.Errorf("after the abort: %+v, want the blocks lost", s)
			}
			if d.ResetPrefixCache() {
				t.Error("the prefix cache can still be reset")
			}
			same(t, "another request", b.plain(d, "other", ids, 5), b.plain(solo, "solo", ids, 5))
			// A server does this when the client of a non-streaming request disconnects.
			tr = doctored(b.prefill(p, "p2", ids), change)
			d.Reject(b.now, tr)
			b.settle()
			wantDead(t, d, "KeyError: \""+name)
		})
	}
}

// A prefill leg with a whole set of remote params waits for a load that never happens, from 64 uncached
// tokens on.
func TestPrefillLegWithRemoteParamsHangs(t *testing.T) {
	for _, n := range []int{63, 64} {
		b, p, d, _ := pair(t, Config{BlockSize: 4})
		ids := prompt(1, n)
		tr := b.prefill(p, "p", ids)
		tr.DoRemotePrefill, tr.DoRemoteDecode = false, true
		b.add(d, &Request{ID: "r", Prompt: ids, MaxTokens: 1, Transfer: tr})
		b.settle()
		if _, ended := b.ends["r"]; ended != (n < 64) {
			t.Errorf("%d tokens: ended %v", n, ended)
		}
	}
}

// A request that the API layer refuses, or that is aborted in the queue, notifies P. If a key is missing,
// the core dies.
func TestRejectionCleanup(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	b.prefill(p, "p", prompt(1, 22))
	d.Reject(b.now, b.take("p"))
	b.settle()
	if s := p.Stats(); s.Leases != 0 || s.Usage != 0 {
		t.Errorf("P still holds: %+v", s)
	}
	d.Reject(b.now, nil)
	d.Reject(b.now, &Transfer{DoRemoteDecode: true})
	b.settle()
	d.Reject(b.now, &Transfer{DoRemotePrefill: true})
	b.settle()
	wantDead(t, d, "remote_block_ids")
}

func TestAbortInTheQueueTellsP(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4, MaxSeqs: 1})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	b.add(d, &Request{ID: "slot", Prompt: prompt(2, 5), MaxTokens: 50})
	d.Step(0)
	b.add(d, &Request{ID: "r", Prompt: ids, Transfer: b.take("p")})
	d.Step(0)
	if s := d.Stats(); s.FetchToStart != 1 || s.WaitingCapacity != 1 {
		t.Errorf("queued: %+v", s)
	}
	d.Abort(0, "r")
	b.settle()
	if p.Stats().Leases != 0 || d.Stats().FetchToStart != 0 {
		t.Errorf("P holds %d leases, D waits to start %d", p.Stats().Leases, d.Stats().FetchToStart)
	}
}

// After an abort during the read, D keeps the blocks until the read ends.
func TestAbortWhileLoading(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 22)
	b.prefill(p, "p", ids)
	b.delay = func() time.Duration { return time.Second }
	b.add(d, &Request{ID: "r", Prompt: ids, Transfer: b.take("p")})
	b.step(d)
	if s := d.Stats(); s.FetchInProgress != 1 {
		t.Errorf("loading: %+v", s)
	}
	d.Abort(0, "r")
	b.step(d)
	if s := d.Stats(); s.FreeBlocks != s.Blocks-1-6 || s.Waiting != 0 {
		t.Errorf("aborted: %+v, want 6 blocks held", s)
	}
	b.settle()
	if s := d.Stats(); s.Usage != 0 {
		t.Errorf("after the read: %+v", s)
	}
	if p.Stats().Leases != 0 {
		t.Error("P still holds its blocks")
	}
}

func TestLoadFailure(t *testing.T) {
	for _, policy := range []LoadPolicy{Fail, Recompute} {
		b, p, d, solo := pair(t, Config{BlockSize: 4, LoadPolicy: policy})
		ids := prompt(1, 22)
		b.plain(p, "warm", ids[:9], 1)
		tr := b.prefill(p, "p", ids)
		tr.Port.V = "9" // nothing listens there
		b.decode(d, "r", ids, 5, tr)
		end := b.ends["r"]
		switch policy {
		case Fail:
			if end.Reason != FinishError || end.Err == nil || len(b.text["r"]) != 0 {
				t.Errorf("fail: %+v", end)
			}
		case Recompute:
			same(t, "recompute", b.text["r"], b.plain(solo, "solo", ids, 5))
			if end.Cached != 8 {
				t.Errorf("recompute reports %d cached tokens, want P's 8", end.Cached)
			}
		}
		if s := d.Stats(); s.NixlFailed != 1 || s.Usage != 0 || s.Waiting != 0 {
			t.Errorf("policy %d: %+v", policy, s)
		}
		if p.Stats().Leases != 1 {
			t.Error("P freed its blocks, although P cannot know about the failure")
		}
	}
}

// Block ids beyond the pool read another layer, which gives garbage. NIXL refuses ids that are far beyond
// it.
func TestBlockIDsOutOfRange(t *testing.T) {
	for _, c := range []struct {
		name string
		id   int
		want Reason
	}{
		{"next layer", 256 + 3, FinishLength},
		{"beyond all", 256*32 + 3, FinishError},
		{"negative", -1, FinishError},
	} {
		b, p, d, solo := pair(t, Config{BlockSize: 4})
		ids := prompt(1, 22)
		tr := b.prefill(p, "p", ids)
		tr.RemoteBlocks.V.Groups[0][2] = c.id
		got := b.decode(d, "r", ids, 5, tr)
		if b.ends["r"].Reason != c.want {
			t.Errorf("%s: ended %v, want %v", c.name, b.ends["r"].Reason, c.want)
		}
		if c.want == FinishLength {
			wantWrong(t, c.name, got, b.plain(solo, "solo", ids, 5))
		}
	}
}

// A null passes vLLM's check for presence, but the handshake with a null address fails.
func TestNullAddressFailsTheLoad(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 22)
	tr := b.prefill(p, "p", ids)
	tr.Host = Field[string]{Present: true, Null: true}
	b.decode(d, "r", ids, 5, tr)
	if got := b.ends["r"].Reason; got != FinishError {
		t.Errorf("ended %v, want an error", got)
	}
}

func TestParseTransfer(t *testing.T) {
	tr, err := ParseTransfer([]byte(`{"do_remote_prefill": 1, "remote_block_ids": [1, 2], "remote_host": null,` +
		` "remote_port": "5601", "tp_size": "x", "other": {"a": [1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case !bool(tr.DoRemotePrefill), bool(tr.DoRemoteDecode):
		t.Error("DoRemotePrefill or DoRemoteDecode is wrong")
	case !tr.RemoteBlocks.V.Broken || !tr.blocks():
		t.Errorf("flat list: %+v", tr.RemoteBlocks)
	case !tr.Host.Present || !tr.Host.Null || tr.EngineID.Present:
		t.Errorf("presence: %+v", tr)
	case tr.peer().Port != 5601 || !tr.TPSize.Null:
		t.Errorf("types: %+v", tr)
	}
	for body, want := range map[string]bool{
		`{}`: false, `{"remote_block_ids":[]}`: false, `{"remote_block_ids":null}`: false,
		`{"remote_block_ids":[[]]}`: true,
	} {
		if tr, err := ParseTransfer([]byte(body)); err != nil || tr.blocks() != want {
			t.Errorf("%s: %v %v, want %v", body, tr.blocks(), err, want)
		}
	}
	if _, err := ParseTransfer([]byte(`[1]`)); err == nil {
		t.Error("an array is accepted")
	}
}
