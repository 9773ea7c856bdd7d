package kv

import (
	"testing"
	"time"
)

func onTier(tier Tier, e Event) Event {
	e.Tier = tier
	return e
}

func belowOf(ix *Index, h Holder, keys []Key) (depth int, b Below) {
	depths, below := make([]int32, h+1), make([]Below, h+1)
	ix.MatchTiers(keys, depths, below)
	return int(depths[h]), below[h]
}

// A match says how much of the prompt is on the GPU, and how much each lower tier must give.
func TestMatchByTier(t *testing.T) {
	gone := func(from, to int) Event { return removed(hashes(from, to, 1)...) }
	bare := func(e Event) Event { e.Bare = true; return e }
	for _, tt := range []struct {
		name   string
		events []Event
		depth  int
		want   Below
	}{
		{"all on the GPU", []Event{stored(0, 8, 1)}, 8, Below{}},
		{"a copy on the GPU counts", []Event{stored(0, 8, 1), onTier(CPU, stored(0, 8, 1))}, 8, Below{}},
		{
			"the GPU forgets the end",
			[]Event{stored(0, 8, 1), onTier(CPU, stored(0, 8, 1)), gone(5, 8)},
			8,
			Below{CPU: 3},
		},
		{
			"the GPU forgets the beginning",
			[]Event{stored(0, 8, 1), onTier(CPU, stored(0, 3, 1)), gone(0, 3)},
			8,
			Below{CPU: 3},
		},
		{
			"names only", // OffloadingConnector without self_describing_kv_events
			[]Event{stored(0, 8, 1), bare(placeholder(0, 8)), gone(2, 8)}, 8, Below{CPU: 6},
		},
		{
			"names that the GPU never told", []Event{bare(placeholder(0, 8))}, 0, Below{},
		},
		{
			"a block comes back", // it is computed again, or copied to the GPU
			[]Event{stored(0, 8, 1), placeholder(0, 8), gone(2, 8), stored(2, 5, 1)}, 8, Below{CPU: 3},
		},
		{
			"the nearest copy counts",
			[]Event{
				stored(0, 8, 1), onTier(Disk, placeholder(0, 8)), onTier(Shared, placeholder(0, 6)), placeholder(0, 4),
				gone(0, 8),
			},
			8,
			Below{CPU: 4, Shared: 2, Disk: 2},
		},
		{
			"a hole in all tiers ends the match",
			[]Event{stored(0, 8, 1), placeholder(0, 8), gone(0, 8), onTier(CPU, gone(4, 5))},
			4,
			Below{CPU: 4},
		},
		{
			"what was read back is forgotten below",
			[]Event{stored(0, 8, 1), placeholder(0, 8), onTier(CPU, gone(0, 8))},
			8,
			Below{},
		},
	} {
		ix := NewIndex(Options{Chain: testChain})
		for i := range tt.events {
			tt.events[i].Group = 0
			ix.Apply(3, &Batch{Events: tt.events[i : i+1]})
		}
		depth, below := belowOf(ix, 3, promptKeys(8, 1))
		if depth != tt.depth || below != tt.want {
			t.Errorf("%s: %d blocks, below %+v; want %d, %+v", tt.name, depth, below, tt.depth, tt.want)
		}
		if got := depthOf(ix, 3, promptKeys(8, 1)); got != depth {
			t.Errorf("%s: Match says %d blocks, MatchTiers %d", tt.name, got, depth)
		}
	}
}

// Nobody says when a shared store drops a block, so the block counts for some time only.
func TestStoresWithoutRemovals(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, tt := range []struct {
		name    string
		tier    Tier
		removal bool // the holder has announced a removal from the tier
		want    int  // blocks of the match in the end
	}{
		{"host memory of the engine", CPU, false, 8},
		{"a shared store", Shared, false, 2},
		{"files", Disk, false, 2},
		{"files whose removals are announced", Disk, true, 8},
	} {
		ix := NewIndex(Options{Chain: testChain})
		ix.Expire(begin)
		ix.Apply(0, &Batch{Events: []Event{
			stored(0, 8, 1), onTier(tt.tier, placeholder(0, 8)), removed(hashes(2, 8, 1)...),
		}})
		if tt.removal {
			ix.Apply(0, &Batch{Events: []Event{onTier(tt.tier, removed(77))}})
		}
		ix.Expire(begin.Add(usualLife - 1))
		if got := depthOf(ix, 0, promptKeys(8, 1)); got != 8 {
			t.Errorf("%s: %d blocks before the end, want 8", tt.name, got)
		}
		ix.Expire(begin.Add(usualLife))
		if got := depthOf(ix, 0, promptKeys(8, 1)); got != tt.want {
			t.Errorf("%s: %d blocks, want %d", tt.name, got, tt.want)
		}
		checkIndex(t, ix)
	}
}
