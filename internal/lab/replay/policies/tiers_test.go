package policies

import (
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// What events say of a sliding window changes nothing: llm-d's index knows full attention only.
func TestByTierKnowsFullAttentionOnly(t *testing.T) {
	const size = 4
	all := kv.NewIndex(kv.Options{Chain: kv.NewChain("", size)})
	x := newByTier(all, size, 1)
	tokens := []kv.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	chain := kv.NewChain("", size)
	keys := chain.Append(nil, chain.Root("", ""), tokens)
	full := kv.Event{
		Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2, 3}, Tokens: tokens, BlockSize: size,
		SpecKind: "full_attention",
	}
	window := full
	window.Group, window.SpecKind = 1, "sliding_window"
	window.Window = size
	x.apply(0, &kv.Batch{Events: []kv.Event{full, window}})
	host := kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2}, Tier: kv.CPU, Bare: true}
	hostWindow := host
	hostWindow.Group = 1
	x.apply(0, &kv.Batch{Seq: 1, Events: []kv.Event{host, hostWindow}})
	depth := []int32{0}
	match := func() [2]int32 {
		all.Match(keys, depth)
		both := [2]int32{depth[0]}
		x.gpu.Match(keys, depth)
		both[1] = depth[0]
		return both
	}
	if got := match(); got != [2]int32{3, 3} {
		t.Errorf("before: %v blocks anywhere and on the GPU", got)
	}
	x.apply(0, &kv.Batch{Seq: 2, Events: []kv.Event{
		{Kind: kv.Removed, Hashes: []kv.EngineHash{1, 2, 3}, Group: 1},
		{Kind: kv.Removed, Hashes: []kv.EngineHash{1, 2}, Group: 1, Tier: kv.CPU},
	}})
	if got := match(); got != [2]int32{3, 3} {
		t.Errorf("without the window's blocks: %v", got)
	}
	x.apply(0, &kv.Batch{Seq: 3, Events: []kv.Event{{Kind: kv.Removed, Hashes: []kv.EngineHash{1, 2, 3}}}})
	if got := match(); got != [2]int32{2, 0} {
		t.Errorf("in host memory only: %v", got)
	}
}
