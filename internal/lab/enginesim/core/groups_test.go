package core

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
)

func parsed(t fataler, s string) []Group {
	t.Helper()
	gs, err := ParseGroups(s)
	if err != nil {
		t.Fatal(err)
	}
	return gs
}

func TestParseGroups(t *testing.T) {
	for s, want := range map[string][]Group{
		"mamba:64,full_attention": {{Kind: "mamba", BlockSize: 64}, {Kind: "full_attention"}},
		"sliding_window::128":     {{Kind: "sliding_window", Window: 128}},
		"":                        nil,
		"mamba:x":                 nil,
		"mamba:-1":                nil,
		"mamba:1:2:3":             nil,
		"full_attention,":         nil,
	} {
		got, err := ParseGroups(s)
		if (err == nil) != (want != nil) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
}

// hybrid is an engine with an index that gets its events.
type hybrid struct {
	*bench
	e     *Engine
	index *kv.Index
	chain kv.Chain
	n     int
}

func newHybrid(t fataler, groups string, blocks int) *hybrid {
	e := New(Config{BlockSize: 4, Blocks: blocks, Groups: parsed(t, groups)})
	chain := kv.NewChain("", 4)
	return &hybrid{bench: newBench(t, e), e: e, index: kv.NewIndex(kv.Options{Chain: chain}), chain: chain}
}

// ask sends a prompt. It returns the number of tokens that the index predicted as cached, and the real
// number.
func (h *hybrid) ask(prompt []uint32) (promised, cached int) {
	h.n++
	keys := h.chain.Append(nil, h.chain.Root("", ""), prompt[:len(prompt)-1])
	depth := make([]int32, 1)
	h.index.Match(keys, depth)
	id := fmt.Sprint(h.n)
	h.add(h.e, &Request{ID: id, Prompt: prompt, MaxTokens: 2})
	h.settle()
	h.index.Apply(0, &kv.Batch{Events: h.events[h.e]})
	h.events[h.e] = nil
	return int(depth[0]) * 4, h.ends[id].Cached
}

// said returns a prompt of n tokens. The tokens depend on topic alone before position at, and on turn after
// it.
func said(topic, at, turn, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(100*topic + i%50)
		if i >= at {
			ids[i] += uint32(1000 * turn)
		}
	}
	return ids
}

func TestThinGroupsShortenHits(t *testing.T) {
	const n = 64 // tokens, 16 blocks
	for _, tt := range []struct {
		groups      string
		again       int // cached tokens when the same prompt comes again
		longer      int // when it comes with more tokens
		apart       int // when another prompt differs after 40 tokens
		apartAgain  int // when a third prompt differs there too
		groupEvents int // events of the first prompt
	}{
		{"full_attention", 60, 64, 40, 40, 1},
		{"full_attention,mamba", 60, 60, 0, 40, 2},
		{"mamba,mamba,mamba,full_attention", 60, 60, 0, 40, 4},
		{"mamba:16,full_attention", 48, 48, 0, 32, 2},
		{"full_attention,sliding_window::9", 60, 60, 0, 40, 2},
		{"sliding_window:8:9,full_attention,mamba:16", 48, 48, 0, 32, 3},
	} {
		t.Run(tt.groups, func(t *testing.T) {
			h := newHybrid(t, tt.groups, 1024)
			h.add(h.e, &Request{ID: "first", Prompt: said(1, n, 0, n), MaxTokens: 1})
			h.settle()
			if got := len(h.events[h.e]); got != tt.groupEvents {
				t.Errorf("%d events, want %d: %+v", got, tt.groupEvents, h.events[h.e])
			}
			h.index.Apply(0, &kv.Batch{Events: h.events[h.e]})
			h.events[h.e] = nil
			for _, step := range []struct {
				name   string
				prompt []uint32
				want   int
			}{
				{"again", said(1, n, 0, n), tt.again},
				{"longer", said(1, n, 1, n+9), tt.longer},
				{"another one", said(1, 40, 2, n), tt.apart},
				{"a third one", said(1, 40, 3, n), tt.apartAgain},
			} {
				promised, cached := h.ask(step.prompt)
				if cached != step.want || promised != cached {
					t.Errorf("%s: %d predicted, %d cached, want %d", step.name, promised, cached, step.want)
				}
			}
			if err := h.e.Audit(); err != nil {
				t.Error(err)
			}
		})
	}
}

// For any groups and any evictions, the index predicts exactly what the engine has cached.
func TestIndexPredictsHybridEngines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SampledFrom([]string{
			"full_attention", "full_attention,mamba", "mamba,mamba,mamba,full_attention",
			"mamba:16,full_attention",
			"full_attention,sliding_window::9", "sliding_window:8:30,full_attention,mamba:16",
			"sliding_window_mla::5,sliding_window:16,full_attention",
		}).Draw(t, "groups")
		h := newHybrid(t, groups, rapid.IntRange(40, 120).Draw(t, "blocks"))
		for range rapid.IntRange(10, 60).Draw(t, "prompts") {
			prompt := said(
				rapid.IntRange(0, 2).Draw(t, "topic"), 8*rapid.IntRange(0, 12).Draw(t, "leaves at"),
				rapid.IntRange(0, 3).Draw(t, "turn"), rapid.IntRange(1, 100).Draw(t, "tokens"),
			)
			promised, cached := h.ask(prompt)
			if promised != cached {
				t.Fatalf("%s: %d of %d predicted, %d cached", groups, promised, len(prompt), cached)
			}
		}
		if err := h.e.Audit(); err != nil {
			t.Fatal(err)
		}
	})
}
