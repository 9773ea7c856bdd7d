package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A prompt has the same text on one engine and split over two, with and without shared prefixes on either
// side, in chunks or whole.
func TestSplitIsExact(t *testing.T) {
	for _, size := range []int{1, 4, 16} {
		t.Run(fmt.Sprint("block ", size), func(t *testing.T) {
			b, p, d, solo := pair(t, Config{BlockSize: size, Blocks: 400, MaxBatchedTokens: 64, MaxModelLen: 390})
			rnd := rand.New(rand.NewPCG(uint64(size), 2))
			var known [][]uint32
			for i := range 300 {
				ids := prompt(uint64(100+i), 1+rnd.IntN(150))
				if len(known) > 0 && rnd.IntN(2) == 0 {
					old := known[rnd.IntN(len(known))]
					ids = append(slices.Clone(old[:rnd.IntN(len(old))]), ids[:1+rnd.IntN(min(len(ids), 60))]...)
				}
				known = append(known, ids)
				out := 1 + rnd.IntN(40)
				seed := uint64(rnd.IntN(2))
				id := fmt.Sprint("r", i)
				b.add(solo, &Request{ID: id + " solo", Prompt: ids, MaxTokens: out, Seed: seed})
				params := b.prefill(p, id+" p", ids)
				b.add(d, &Request{ID: id, Prompt: ids, MaxTokens: out, Seed: seed, Transfer: params})
				b.settle()
				same(t, fmt.Sprintf("prompt %d of %d tokens", i, len(ids)), b.text[id], b.text[id+" solo"])
				if got := len(b.text[id]); got != out {
					t.Fatalf("%d tokens, want %d", got, out)
				}
			}
			if s := p.Stats(); s.Leases != 0 || s.Usage != 0 || s.NixlNotifiedLate != 0 {
				t.Errorf("P at the end: %+v", s)
			}
			if s := d.Stats(); s.NixlTransfers != 300 || s.Usage != 0 {
				t.Errorf("D at the end: %+v", s)
			}
		})
	}
}

// Many concurrent splits with slow reads, few blocks and preemptions are exact too.
func TestConcurrentSplitsAreExact(t *testing.T) {
	b, p, d, solo := pair(t,
		Config{BlockSize: 4, Blocks: 60, MaxBatchedTokens: 32, MaxSeqs: 6, MaxModelLen: 120})
	rnd := rand.New(rand.NewPCG(7, 7))
	b.delay = func() time.Duration { return time.Duration(rnd.IntN(1000)) * time.Millisecond }
	for round := range 40 {
		var ids []string
		prompts := map[string][]uint32{}
		for i := range 8 {
			id := fmt.Sprintf("r%d.%d", round, i)
			ids = append(ids, id)
			prompts[id] = append(prompt(uint64(round%3), 4+rnd.IntN(20)),
				prompt(uint64(round*10+i), 1+rnd.IntN(30))...)
			b.prefill(p, id+" p", prompts[id])
		}
		for _, id := range ids {
			b.add(d, &Request{ID: id, Prompt: prompts[id], MaxTokens: 30, Transfer: b.take(id + " p")})
			b.add(solo, &Request{ID: id + " solo", Prompt: prompts[id], MaxTokens: 30})
		}
		b.settle()
		for _, id := range ids {
			same(t, id, b.text[id], b.text[id+" solo"])
		}
	}
	if s := d.Stats(); s.Preemptions == 0 {
		t.Error("no preemption: the test does not cover it")
	}
}

// After a load D announces the full blocks of the prompt that it did not have, with their parent, and then
// the generated blocks.
func TestDecodeAnnouncesLoadedBlocks(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 22) // 5 full blocks and 2 tokens
	b.plain(d, "warm", ids[:9], 1)
	b.events[d] = nil
	b.decode(d, "r", ids, 7, b.prefill(p, "r p", ids))
	// 22 + 7 - 1 = 28 tokens have KV: 7 full blocks.
	got := b.events[d]
	if len(got) != 3 {
		t.Fatalf("%d events, want 3: %v", len(got), got)
	}
	for i, want := range []struct{ blocks, tokens int }{{3, 12}, {1, 4}, {1, 4}} {
		if len(got[i].Hashes) != want.blocks || len(got[i].Tokens) != want.tokens || !got[i].HasParent {
			t.Errorf("event %d: %+v, want %+v with a parent", i, got[i], want)
		}
	}
	if !slices.Equal(got[0].Tokens, ids[8:20]) {
		t.Errorf("the loaded blocks were announced with tokens %v", got[0].Tokens)
	}
}

// A request with one output token announces floor(N/B) blocks of its prompt. In general it announces
// floor((N+out-1)/B).
func TestStoredBlocks(t *testing.T) {
	for _, c := range []struct{ n, out, want int }{
		{3, 1, 0}, {4, 1, 1}, {8, 1, 2}, {7, 1, 1}, {7, 2, 2}, {4, 4, 1}, {4, 5, 2}, {1, 12, 3},
	} {
		e := New(Config{BlockSize: 4})
		b := newBench(t, e)
		b.plain(e, "r", prompt(1, c.n), c.out)
		stored := 0
		for _, ev := range b.events[e] {
			stored += len(ev.Hashes)
		}
		if stored != c.want {
			t.Errorf("%d prompt and %d generated tokens: %d blocks announced, want %d", c.n, c.out, stored, c.want)
		}
	}
}

func TestParamsAreThoseOfVLLM(t *testing.T) {
	e := New(Config{BlockSize: 32, EngineID: "6df2bc3d-18dc-41d5-9b1e-baf285660f54"})
	b := newBench(t, e)
	b.prefill(e, "cmpl-t-1-0-a8d3f786", prompt(1, 100))
	const want = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],` +
		`"remote_engine_id":"6df2bc3d-18dc-41d5-9b1e-baf285660f54",` +
		`"remote_request_id":"cmpl-t-1-0-a8d3f786","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,` +
		`"dcp_size":1,"pp_size":1,"remote_num_tokens":100,` +
		`"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`
	if got := string(b.params["cmpl-t-1-0-a8d3f786"]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.prefill(e, "again", prompt(1, 100))
	if tr := b.take("again"); tr.PrefillCached.V != 96 || len(tr.RemoteBlocks.V.Groups[0]) != 4 {
		t.Errorf("second prefill: %d cached, blocks %v; want 96 and 4 blocks",
			tr.PrefillCached.V, tr.RemoteBlocks.V.Groups)
	}
}

// remote_prefill_cached_tokens is present only if the first token was the last.
func TestParamsOfLongerPrefill(t *testing.T) {
	e := New(Config{BlockSize: 4})
	b := newBench(t, e)
	b.add(e, &Request{ID: "r", Prompt: prompt(1, 8), MaxTokens: 2, Transfer: &Transfer{DoRemoteDecode: true}})
	b.settle()
	tr := b.take("r")
	if tr.PrefillCached.Present || tr.NumTokens.V != 9 || len(tr.RemoteBlocks.V.Groups[0]) != 3 {
		t.Errorf("got %+v, want no cached tokens, 9 tokens, 3 blocks", tr)
	}
}

func TestCachedTokens(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 22)
	b.plain(p, "warm", ids[:12], 1)
	b.decode(d, "with", ids, 1, b.prefill(p, "p1", ids))
	if got := b.ends["with"].Cached; got != 12 {
		t.Errorf("D reports %d cached tokens, want P's 12", got)
	}
	ids = prompt(2, 22)
	tr := b.prefill(p, "p2", ids)
	tr.PrefillCached = Field[int]{}
	b.decode(d, "without", ids, 1, tr)
	if got := b.ends["without"].Cached; got != 22 {
		t.Errorf("D reports %d cached tokens without P's number, want all 22", got)
	}
}

func TestSkipReadCacheDeclinesTheLoad(t *testing.T) {
	b, p, d, solo := pair(t, Config{BlockSize: 4})
	ids := prompt(1, 22)
	tr := b.prefill(p, "p", ids)
	b.add(d, &Request{ID: "r", Prompt: ids, MaxTokens: 5, SkipReadCache: true, Transfer: tr})
	b.settle()
	same(t, "text", b.text["r"], b.plain(solo, "solo", ids, 5))
	if s := d.Stats(); s.NixlTransfers != 0 {
		t.Errorf("%d transfers, want none", s.NixlTransfers)
	}
	if s := p.Stats(); s.Leases != 0 {
		t.Error("P was not notified")
	}
}
