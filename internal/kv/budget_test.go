package kv

import (
	"runtime"
	"testing"
)

func TestDeepestGoFirst(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 300 * (slotBytes + entryBytes)})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 256, 1)}})
	for seed := range Token(20) {
		ix.Apply(0, &Batch{Events: []Event{stored(0, 10, 1000*(seed+1))}})
	}
	s := ix.Stats()
	if s.Bytes > s.Budget || s.Truncated == 0 || s.Truncated != s.Holders[0].Truncated {
		t.Errorf("stats %+v: want bytes within the budget and truncations counted", s)
	}
	if got := depthOf(ix, 0, promptKeys(256, 1)); got < 32 || got >= 256 {
		t.Errorf("depth %d of the long prompt, want it cut and not lost", got)
	}
	for seed := range Token(20) {
		if got := depthOf(ix, 0, promptKeys(10, 1000*(seed+1))); got != 10 {
			t.Errorf("depth %d of short prompt %d, want 10", got, seed)
		}
	}
}

func TestOldestGoFirstAmongEquals(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 100 * (slotBytes + entryBytes)})
	for seed := range Token(20) {
		ix.Apply(0, &Batch{Events: []Event{stored(0, 10, 1000*(seed+1))}})
	}
	if old, recent := depthOf(ix, 0, promptKeys(10, 1000)), depthOf(ix, 0, promptKeys(10, 20000)); old >= recent || recent != 10 {
		t.Errorf("depths %d of the oldest and %d of the latest prompt, want less and 10", old, recent)
	}
}

func TestLargestHolderGivesUpFirst(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 400 * (slotBytes + entryBytes)})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 64, 1)}})
	ix.Apply(1, &Batch{Events: []Event{stored(0, 800, 5000)}})
	if got := depthOf(ix, 0, promptKeys(64, 1)); got != 64 {
		t.Errorf("depth %d of the small holder, want 64", got)
	}
	if s := ix.Stats(); s.Holders[0].Truncated != 0 || s.Holders[1].Truncated < 400 {
		t.Errorf("truncated %+v, want all from the large holder", s.Holders)
	}
}

// A removal of what was truncated does nothing, and a block behind it is an orphan.
func TestTruncatedBlocksAreUnknown(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 64 * (slotBytes + entryBytes)})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 100, 1)}})
	depth := depthOf(ix, 0, promptKeys(100, 1))
	got := ix.Apply(0, &Batch{Events: []Event{removed(hashes(99, 100, 1)...), stored(100, 101, 1)}})
	if want := (Applied{Orphans: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if after := depthOf(ix, 0, promptKeys(101, 1)); after != depth {
		t.Errorf("depth %d, was %d", after, depth)
	}
}

func TestRoomComesBack(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 5000, 1)}})
	full := ix.Stats().Bytes
	ix.Apply(0, &Batch{Events: []Event{{Kind: Removed, Hashes: hashes(10, 5000, 1)}}})
	if got := ix.Stats().Bytes; got > full/20 {
		t.Errorf("%d bytes after nearly all was removed, %d before", got, full)
	}
	if got := depthOf(ix, 0, promptKeys(5000, 1)); got != 10 {
		t.Errorf("depth %d, want 10", got)
	}
}

// What Stats says of memory is near what the heap says.
func TestBytesAreHonest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		holders int
		shared  bool
	}{
		{"16 holders, nothing shared", 16, false},
		{"16 holders, all the same", 16, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := heap()
			ix := NewIndex(Options{Chain: testChain})
			for h := range tt.holders {
				for i := range 20 {
					seed := Token(1_000_000 * i)
					if !tt.shared {
						seed += Token(50_000 * h)
					}
					ix.Apply(Holder(h), &Batch{Events: []Event{stored(0, 512, seed)}})
				}
			}
			took, said := heap()-before, ix.Stats().Bytes
			t.Logf("%d memberships, %d blocks: %d bytes, said %d", ix.Stats().Memberships, ix.Stats().Blocks, took, said)
			if took > said*5/4 || took < said/2 {
				t.Errorf("the heap grew by %d bytes, Stats says %d", took, said)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDeeperOctavesGoBeforeOlderBlocks(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 100, 1)}})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 130, 5000)}})
	ix.trees[0].shed(10)
	checkTrees(t, ix)
	if old, deep := depthOf(ix, 0, promptKeys(100, 1)), depthOf(ix, 0, promptKeys(130, 5000)); old >= 100 || deep != 128 {
		t.Errorf("depths %d and %d, want less than 100 and 128", old, deep)
	}
}

// A ghost goes with the last block under it, also when that is truncated.
func TestNoGhostsAfterTruncation(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 8, 1), removed(hashes(2, 7, 1)...)}})
	ix.trees[0].shed(1)
	checkTrees(t, ix)
	if got := ix.trees[0].used(); got != 2 {
		t.Errorf("%d nodes, want 2", got)
	}
}
