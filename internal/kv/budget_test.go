package kv

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// shedHolder drops part of what a holder has, as trim does.
func shedHolder(ix *Index, h Holder, quota int) {
	t := ix.holdings[h]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shed(quota, deepestFirst)
	t.account()
}

func TestDeepestGoFirst(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 200_000})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 5000, 1)}})
	for seed := range Token(100) {
		ix.Apply(0, &Batch{Events: []Event{stored(0, 10, 100_000*(seed+1))}})
	}
	s := ix.Stats()
	if s.Bytes > s.Budget || s.Truncated == 0 || s.Truncated != s.Holders[0].Truncated || !ix.Truncated(0) {
		t.Errorf("stats %+v: want bytes within the budget and truncations told", s)
	}
	if got := depthOf(ix, 0, promptKeys(5000, 1)); got < 64 || got >= 5000 {
		t.Errorf("depth %d of the long prompt, want it cut and not lost", got)
	}
	for seed := range Token(100) {
		if got := depthOf(ix, 0, promptKeys(10, 100_000*(seed+1))); got != 10 {
			t.Errorf("depth %d of short prompt %d, want 10", got, seed)
		}
	}
}

func TestOldestGoFirstAmongEquals(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 300_000})
	const prompts = 2000
	for seed := range Token(prompts) {
		ix.Apply(0, &Batch{Events: []Event{stored(0, 10, 1000*(seed+1))}})
	}
	if old, recent := depthOf(ix, 0,
		promptKeys(10, 1000)), depthOf(ix, 0, promptKeys(10, 1000*prompts)); old >= recent || recent != 10 {
		t.Errorf("depths %d of the oldest and %d of the latest prompt, want less and 10", old, recent)
	}
}

// A prompt that grew is as recent as its growth, so its beginning does not go first.
func TestGrowthKeepsTheBeginning(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 64, 1)}})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 64, 5000)}})
	ix.Apply(0, &Batch{Events: []Event{stored(64, 66, 1)}})
	shedHolder(ix, 0, 40)
	checkIndex(t, ix)
	if grown, old := depthOf(ix, 0, promptKeys(66, 1)), depthOf(ix, 0, promptKeys(64, 5000)); grown != 64 ||
		old != 26 {
		t.Errorf("depths %d of the prompt that grew and %d of the other, want 64 and 26", grown, old)
	}
}

func TestLargestHolderGivesUpFirst(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 400_000})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 64, 1)}})
	ix.Apply(1, &Batch{Events: []Event{stored(0, 20_000, 5000)}})
	if got := depthOf(ix, 0, promptKeys(64, 1)); got != 64 {
		t.Errorf("depth %d of the small holder, want 64", got)
	}
	if s := ix.Stats(); s.Holders[0].Truncated != 0 || s.Holders[1].Truncated < 400 {
		t.Errorf("truncated %+v, want all from the large holder", s.Holders)
	}
	if ix.Truncated(0) || !ix.Truncated(1) {
		t.Errorf("truncated %v and %v, want the large holder alone to be marked", ix.Truncated(0), ix.Truncated(1))
	}
	ix.Forget(1)
	if ix.Truncated(1) {
		t.Error("still marked after Forget")
	}
}

// A removal of what was truncated does nothing, and a block behind it is an orphan.
func TestTruncatedBlocksAreUnknown(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 100, 1)}})
	shedHolder(ix, 0, 30)
	depth := depthOf(ix, 0, promptKeys(100, 1))
	if depth != 70 {
		t.Errorf("depth %d, want 70", depth)
	}
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
	ix.Apply(0, &Batch{Events: []Event{stored(0, 400_000, 1)}})
	full := ix.Stats().Bytes
	ix.Apply(0, &Batch{Events: []Event{{Kind: Removed, Hashes: hashes(10, 400_000, 1)}}})
	if got := ix.Stats().Bytes; got > full/12 {
		t.Errorf("%d bytes after nearly all was removed, %d before", got, full)
	}
	if got := depthOf(ix, 0, promptKeys(400_000, 1)); got != 10 {
		t.Errorf("depth %d, want 10", got)
	}
}

// The memory in Stats is near the memory in the heap.
func TestBytesAreHonest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		holders int
		prompt  int // blocks
		shared  bool
		most    int64 // bytes a membership
	}{
		{"16 holders, nothing shared", 16, 512, false, 45},
		{"16 holders, all the same", 16, 512, true, 36},
		{"16 holders, prompts of four blocks", 16, 4, false, 70},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := heap()
			ix := NewIndex(Options{Chain: testChain})
			for h := range tt.holders {
				for i := range 8192 / tt.prompt {
					seed := Token(4 * tt.prompt * i)
					if !tt.shared {
						seed += Token(40_000 * h)
					}
					ix.Apply(Holder(h), &Batch{Events: []Event{with(stored(0, tt.prompt, 1), func(e *Event) {
						e.Hashes, e.Tokens = hashes(0, tt.prompt, seed), prompt(tt.prompt, seed)
					})}})
				}
			}
			took, s := heap()-before, ix.Stats()
			each := took / int64(s.Memberships)
			t.Logf("%d memberships, %d blocks: %d bytes, said %d; %d each",
				s.Memberships, s.Blocks, took, s.Bytes, each)
			if took > s.Bytes*5/4 || took < s.Bytes/2 {
				t.Errorf("the heap grew by %d bytes, Stats says %d", took, s.Bytes)
			}
			if each > tt.most {
				t.Errorf("%d bytes a membership, want %d at most", each, tt.most)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDeeperOctavesGoBeforeOlderBlocks(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 100, 1)}})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 130, 5000)}})
	shedHolder(ix, 0, 10)
	checkIndex(t, ix)
	if old, deep := depthOf(ix, 0, promptKeys(100, 1)), depthOf(ix, 0, promptKeys(130, 5000)); old != 92 ||
		deep != 128 {
		t.Errorf("depths %d and %d, want 92 and 128", old, deep)
	}
}

// Blocks that only lead to other blocks go with the last of the other blocks, also in a truncation.
func TestNothingStaysForNobody(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 200, 1), removed(hashes(2, 199, 1)...)}})
	if got := ix.Stats().Blocks; got != 200 {
		t.Errorf("%d blocks kept, want 200: the last one must be found should the hole be filled", got)
	}
	shedHolder(ix, 0, 1)
	checkIndex(t, ix)
	if got := ix.Stats().Blocks; got != 2 {
		t.Errorf("%d blocks kept, want 2", got)
	}
}

// After a churn of ten times the budget the heap is near what is live, and it shrinks when holders leave.
func TestChurnLeavesNoWaste(t *testing.T) {
	const holders, budget = 8, 4 << 20
	before := heap()
	ix := NewIndex(Options{Chain: testChain, ByteBudget: budget})
	r := rand.New(rand.NewPCG(1, 2))
	next := Token(0)
	for told := 0; told < 10*budget; {
		n := 1 + r.IntN(300)
		e := Event{Kind: Stored, BlockSize: 4, Tokens: prompt(n, next), Hashes: make([]EngineHash, n)}
		for i := range e.Hashes {
			e.Hashes[i] = EngineHash(r.Uint64())
		}
		next += Token(4 * n)
		told += n * 31
		ix.Apply(Holder(r.IntN(holders)), &Batch{Events: []Event{e}})
	}
	checkIndex(t, ix)
	s, took := ix.Stats(), heap()-before
	live := int64(s.Memberships) * 38 // what they take when nothing was ever dropped
	t.Logf("%d memberships: heap %d, live %d, said %d, budget %d", s.Memberships, took, live, s.Bytes, s.Budget)
	if took > live*13/10 || took > budget*11/10 {
		t.Errorf("the heap is %d for %d live bytes and a budget of %d", took, live, budget)
	}
	for h := range Holder(holders) {
		ix.Forget(h)
		left := heap() - before
		if most := took*int64(holders-1-int(h))/holders*12/10 + 1<<20; left > most {
			t.Errorf("with %d of %d holders gone the heap is %d, want %d at most", h+1, holders, left, most)
		}
	}
	runtime.KeepAlive(ix)
}

// A group still counts if the index has no block of the group left, or never took one because of the budget.
// The missing blocks are unknown; they are not agreement.
func TestTruncationHidesNoGroup(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 2, 1)}})
	h := ix.holdings[0]
	h.glance.cut.Store(true)
	shedHolder(ix, 0, 2)
	ix.Apply(0, &Batch{Events: []Event{with(stored(1, 2, 1), func(e *Event) { e.Group = 1 })}})
	ix.Apply(0, &Batch{Events: []Event{stored(0, 2, 1)}})
	if got := depthOf(ix, 0, promptKeys(2, 1)); got != 0 {
		t.Errorf("depth %d, and group 1 has no block 0", got)
	}
	ix.Forget(0)
	ix.Apply(0, &Batch{Events: []Event{stored(0, 2, 1)}})
	if got := depthOf(ix, 0, promptKeys(2, 1)); got != 2 {
		t.Errorf("depth %d after a new start, want 2", got)
	}
}
