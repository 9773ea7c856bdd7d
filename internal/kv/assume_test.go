package kv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAssume(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Assume(0, promptKeys(8, 1), 100)
	ix.Assume(0, promptKeys(8, 1), 100)
	if got := depthOf(ix, 0, promptKeys(9, 1)); got != 8 {
		t.Errorf("depth %d, want 8", got)
	}
	if got := ix.Stats().Memberships; got != 8 {
		t.Errorf("%d memberships of a prompt assumed twice, want 8", got)
	}
	ix.Forget(0)
	if got := depthOf(ix, 0, promptKeys(8, 1)); got != 0 {
		t.Errorf("depth %d after Forget", got)
	}
}

func TestAssumeKeepsWhatIsUsed(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for i := range 50 {
		ix.Assume(0, promptKeys(8, 1), 80)
		ix.Assume(0, promptKeys(8, Token(1000*(i+1))), 80)
		if n := ix.Stats().Memberships; n > 80 {
			t.Fatalf("%d memberships of at most 80", n)
		}
	}
	if got := depthOf(ix, 0, promptKeys(8, 1)); got != 8 {
		t.Errorf("depth %d of the prompt that is always used, want 8", got)
	}
	if got := depthOf(ix, 0, promptKeys(8, 1000)); got != 0 {
		t.Errorf("depth %d of the prompt not seen for longest, want 0", got)
	}
	if got := depthOf(ix, 0, promptKeys(8, 50000)); got != 8 {
		t.Errorf("depth %d of the latest prompt, want 8", got)
	}
}

func TestAssumeCutsAPromptLargerThanTheLimit(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for _, tt := range []struct{ limit, want int }{{20, 20}, {-1, 0}, {0, 0}} {
		ix.Forget(0)
		ix.Assume(0, promptKeys(50, 1), tt.limit)
		if got := depthOf(ix, 0, promptKeys(50, 1)); got != tt.want {
			t.Errorf("limit %d: depth %d, want %d", tt.limit, got, tt.want)
		}
	}
}

// Of prompts that share nothing, the least recently used go first, from their ends.
func TestAssumeIsAnLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ix := NewIndex(Options{Chain: testChain})
		lengths := rapid.SliceOfN(rapid.IntRange(1, 60), 2, 12).Draw(t, "lengths")
		var recent []int // prompts, the latest last
		left := map[int]int{}
		limit := 60
		t.Repeat(map[string]func(*rapid.T){
			"assume": func(t *rapid.T) {
				which := rapid.IntRange(0, len(lengths)-1).Draw(t, "which")
				limit = rapid.IntRange(60, 200).Draw(t, "limit")
				ix.Assume(3, promptKeys(lengths[which], Token(10_000*which)), limit)
				recent = append(slices.DeleteFunc(recent, func(i int) bool { return i == which }), which)
				left[which] = lengths[which]
				over := -limit
				for _, i := range recent {
					over += left[i]
				}
				for ; over > 0; over-- {
					if left[recent[0]]--; left[recent[0]] == 0 {
						recent = recent[1:]
					}
				}
			},
			"forget": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					ix.Forget(3)
					recent = nil
					clear(left)
				}
			},
			"": func(t *rapid.T) {
				checkIndex(t, ix)
				for i, n := range lengths {
					if got := depthOf(ix, 3, promptKeys(n, Token(10_000*i))); got != left[i] {
						t.Fatalf("prompt %d has depth %d, want %d: %v of %v", i, got, left[i], recent, lengths)
					}
				}
			},
		})
	})
}

// Outdated entries of the order of use do not pile up.
func TestTurnsAreTidied(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for range 50 * tidyLeast {
		ix.Assume(0, promptKeys(8, 1), 80)
	}
	if got := cap(ix.holdings[0].turns.list); got > 4*tidyLeast {
		t.Errorf("%d turns kept of a prompt that is used again and again", got)
	}
	checkIndex(t, ix)
}

// The last prompt is there as a whole, and the others from their beginning on. The number of blocks never
// exceeds the limit, however prompts share blocks.
func TestAssumeKeepsToItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ix := NewIndex(Options{Chain: testChain})
		t.Repeat(map[string]func(*rapid.T){
			"assume": func(t *rapid.T) {
				limit := rapid.IntRange(1, 700).Draw(t, "limit")
				tokens := prompt(rapid.IntRange(1, 300).Draw(t, "shared"), 1)
				tokens = append(tokens,
					prompt(rapid.IntRange(1, 300).Draw(t, "own"), Token(10_000*rapid.IntRange(1, 5).Draw(t, "which")))...)
				keys := testChain.Append(nil, testChain.Root("", ""), tokens)
				ix.Assume(3, keys, limit)
				if n := ix.Stats().Memberships; n > limit {
					t.Fatalf("%d blocks of at most %d", n, limit)
				}
				if got := depthOf(ix, 3, keys); len(keys) <= limit && got != len(keys) {
					t.Fatalf("depth %d of the prompt just assumed, want %d", got, len(keys))
				}
			},
			"": func(t *rapid.T) { checkIndex(t, ix) },
		})
	})
}
