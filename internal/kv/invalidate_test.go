package kv

import (
	"testing"

	"pgregory.net/rapid"
)

// TestDoubtIsTheTwin compares with a set of believed keys for each holder, from which a doubt takes every
// prompt's blocks behind the doubted one.
func TestDoubtIsTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chain := NewChain("m", 1)
		ix := NewIndex(Options{Chain: chain})
		var prompts [][]Key
		believed := [2]map[Key]bool{{}, {}}
		draw := func() []Key {
			ids := rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 6).Draw(t, "ids")
			return chain.Append(nil, chain.Root("", ""), ids)
		}
		t.Repeat(map[string]func(*rapid.T){
			"assume": func(t *rapid.T) {
				h, keys := rapid.IntRange(0, 1).Draw(t, "holder"), draw()
				ix.Assume(Holder(h), keys, 1000)
				prompts = append(prompts, keys)
				for _, k := range keys {
					believed[h][k] = true
				}
			},
			"doubt": func(t *rapid.T) {
				h, keys := rapid.IntRange(0, 1).Draw(t, "holder"), draw()
				from := rapid.IntRange(-1, 7).Draw(t, "from")
				ix.Invalidate(Holder(h), keys, from)
				for _, p := range prompts {
					for i, k := range p {
						if from >= 0 && from < len(keys) && len(p) > from && p[from] == keys[from] && i >= from {
							delete(believed[h], k)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				keys := draw()
				got := make([]int32, 2)
				ix.Match(keys, got)
				for h := range believed {
					want := 0
					for want < len(keys) && believed[h][keys[want]] {
						want++
					}
					if int(got[h]) != want {
						t.Fatalf("holder %d has %d blocks of %v, want %d", h, got[h], keys, want)
					}
				}
			},
		})
	})
}
