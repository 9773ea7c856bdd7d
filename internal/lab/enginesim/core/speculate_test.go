package core

import (
	"fmt"
	"testing"
)

// Speculation does not change the text, and all blocks become free again. More draft tokens make fewer steps.
func TestSpeculationChangesNoText(t *testing.T) {
	before := 0
	for _, k := range []int{0, 1, 3, 7} {
		b, _, d, solo := pair(t, Config{BlockSize: 4, Speculative: k, MaxModelLen: 200})
		solo.cfg.Speculative = 0
		for i, out := range []int{1, 2, 17, 150} {
			ids := prompt(uint64(i+1), 30)
			want := b.plain(solo, fmt.Sprint("s", i), ids, out)
			same(t, fmt.Sprintf("%d tokens, %d drafts", out, k), b.plain(d, fmt.Sprint("d", i), ids, out), want)
		}
		s := d.Stats()
		if s.GenerationTokens != 170 || s.FreeBlocks != s.Blocks-1 {
			t.Errorf("%d drafts: %d tokens, %d of %d blocks free", k, s.GenerationTokens, s.FreeBlocks, s.Blocks)
		}
		if s.SpecDrafted != s.SpecDrafts*uint64(k) || (s.SpecAccepted > 0) != (k > 0) {
			t.Errorf("%d drafts: %+v", k, s.Counters)
		}
		steps := int(s.GenerationTokens - s.SpecAccepted)
		if before > 0 && steps >= before {
			t.Errorf("%d drafts: %d steps, want fewer than %d with fewer drafts", k, steps, before)
		}
		before = steps
	}
}

// While it generates, a sequence holds slots ahead of its tokens; while it prefills or loads, it holds
// none.
func TestSpeculationHoldsSlots(t *testing.T) {
	// After the first step of generation there are 33 tokens, in blocks of 4.
	for k, want := range map[int]int{0: 9, 2: 10, 8: 13} {
		e := New(Config{BlockSize: 4, Speculative: k})
		if err := e.Add(0, &Request{ID: "a", Prompt: prompt(1, 32), MaxTokens: 100}); err != nil {
			t.Fatal(err)
		}
		held := func() int { s := e.Stats(); return s.Blocks - 1 - s.FreeBlocks }
		e.Step(0)
		if n := held(); n != 8 {
			t.Errorf("%d drafts: a prompt holds %d blocks, want 8", k, n)
		}
		e.Step(0)
		if n := held(); n != want {
			t.Errorf("%d drafts: a sequence of 33 tokens holds %d blocks, want %d", k, n, want)
		}
	}
}

// The decode engine computes the tokens that the prefill left. The text equals that of a request without a
// split, for any length, with and without cached tokens.
func TestWithheldTokensAreComputedByDecode(t *testing.T) {
	for _, withheld := range []int{0, 1, 3, 7, 15} {
		b, p, d, solo := pair(t, Config{BlockSize: 4, Withhold: withheld, Speculative: withheld})
		solo.cfg.Withhold, solo.cfg.Speculative = 0, 0
		for n := 1; n < 60; n++ {
			ids := prompt(uint64(n%5), n) // some prompts share a prefix
			id := fmt.Sprintf("%d of %d", withheld, n)
			params := b.prefill(p, "p "+id, ids)
			told := n
			if n > withheld {
				told -= withheld
			}
			if got := params.NumTokens.V; got != told || len(params.RemoteBlocks.V.Groups[0]) != (told+3)/4 {
				t.Fatalf("%s: %d tokens in %v", id, got, params.RemoteBlocks.V.Groups)
			}
			same(t, id, b.decode(d, "d "+id, ids, 9, params), b.plain(solo, "s "+id, ids, 9))
		}
		for _, e := range []*Engine{p, d} {
			if s := e.Stats(); s.FreeBlocks != s.Blocks-1 || s.NixlExpired > 0 || s.NixlFailed > 0 {
				t.Errorf("%d withheld: %s: %+v", withheld, e.cfg.EngineID, s)
			}
		}
	}
}

// Both sides must agree on the number of withheld tokens. A decode engine that expects another number of
// blocks crashes or takes the wrong ones.
func TestWithheldOnOneSideOnly(t *testing.T) {
	b, p, d, _ := pair(t, Config{BlockSize: 4})
	p.cfg.Withhold = 3
	ids := prompt(1, 26) // 23 tokens in 6 blocks, but decode expects 7
	b.decode(d, "r", ids, 5, b.prefill(p, "p", ids))
	wantDead(t, d, "num_decode_blocks")

	b, p, d, solo := pair(t, Config{BlockSize: 4})
	d.cfg.Withhold = 3
	wantWrong(t, "text", b.decode(d, "r", ids, 8, b.prefill(p, "p", ids)), b.plain(solo, "solo", ids, 8))
}

// Sequences compete for blocks for their drafts. They are preempted and computed again, and generate the
// same text.
func TestSpeculationUnderPressure(t *testing.T) {
	b, _, d, solo := pair(t, Config{BlockSize: 4, Blocks: 60, MaxModelLen: 120, Speculative: 7})
	for i := range 9 {
		b.add(d, &Request{ID: fmt.Sprint("d", i), Prompt: prompt(uint64(i+1), 20), MaxTokens: 60})
	}
	b.settle()
	for i := range 9 {
		want := b.plain(solo, fmt.Sprint("s", i), prompt(uint64(i+1), 20), 60)
		same(t, fmt.Sprint("text ", i), b.text[fmt.Sprint("d", i)], want)
	}
	if s := d.Stats(); s.Preemptions == 0 || s.FreeBlocks != s.Blocks-1 || s.SpecAccepted == 0 {
		t.Errorf("%+v", s)
	}
}
