package kv

import (
	"testing"
	"time"
)

// in makes an event one of a KV cache group.
func in(group int, kind string, e Event) Event {
	e.Group, e.SpecKind = group, kind
	return e
}

// keeps leaves only some hashes in an event, by their position, as engines do for groups that do not keep
// every block.
func keeps(e Event, at ...int) Event {
	hashes := []EngineHash{}
	for _, i := range at {
		hashes = append(hashes, e.Hashes[i])
	}
	e.Hashes = hashes
	return e
}

// sized gives an event blocks of another size, the hashes of which are those of ours that end at the same
// token.
func sized(size int, e Event) Event {
	step := max(1, size/e.BlockSize)
	hashes := []EngineHash{}
	for i := step - 1; i < len(e.Hashes); i += step {
		hashes = append(hashes, e.Hashes[i])
	}
	e.Hashes, e.BlockSize = hashes, size
	return e
}

func window(tokens int, e Event) Event {
	e.Window = tokens
	return e
}

func inCPU(e Event) Event {
	e.Tier = CPU
	return e
}

// chunk is the placeholder of an offload tier: the last block of a chunk, with the group of its key and
// nothing else.
func chunk(group, block int) Event {
	return Event{Kind: Stored, Hashes: hashes(block, block+1, 1), Tier: CPU, Group: group}
}

func TestHybridModels(t *testing.T) {
	full := in(0, "full_attention", stored(0, 8, 1))
	mamba := func(group int, at ...int) Event { return keeps(in(group, "mamba", stored(0, 8, 1)), at...) }
	slide := func(at ...int) Event { // a window of 8 tokens needs 2 blocks
		return keeps(window(8, in(1, "sliding_window", stored(0, 8, 1))), at...)
	}
	part := func(group int, kind string) Event {
		return in(group, kind, Event{Kind: Stored, Hashes: []EngineHash{9}, Tokens: []Token{1}, BlockSize: 1})
	}
	gone := func(group, block int) Event { return in(group, "", removed(hashes(block, block+1, 1)...)) }
	for _, tt := range []struct {
		name   string
		events []Event
		want   int // of the 8 blocks of prompt 1
	}{
		{"full attention alone", []Event{full}, 8},
		{"three Mamba groups with one state for all tokens", []Event{
			full, mamba(1, 7), mamba(2, 7), mamba(3, 7),
		}, 8},
		{"the Mamba groups come first", []Event{
			in(3, "full_attention", stored(0, 8, 1)), mamba(0, 7), mamba(1, 7), mamba(2, 7),
		}, 8},
		{"and are told before the blocks", []Event{
			mamba(0, 7), mamba(1, 7), mamba(2, 7), in(3, "full_attention", stored(0, 8, 1)),
		}, 8},
		{"a state in the middle", []Event{full, mamba(1, 3)}, 4},
		{"two states", []Event{full, mamba(1, 3, 7)}, 8},
		{"the later of two states is gone", []Event{full, mamba(1, 3, 7), gone(1, 7)}, 4},
		{"both are gone", []Event{full, mamba(1, 3, 7), gone(1, 7), gone(1, 3)}, 0},
		{"one group has another state", []Event{full, mamba(1, 3, 7), mamba(2, 3)}, 4},
		{"no state that all groups have", []Event{full, mamba(1, 7), mamba(2, 3)}, 0},
		{"no state kept at all", []Event{full, mamba(1)}, 0},
		{"full attention has less than the state needs", []Event{full, mamba(1, 3, 7), gone(0, 5)}, 4},
		{"the state outlives the block and serves it again", []Event{
			full, mamba(1, 7), gone(0, 7), in(0, "full_attention", stored(7, 8, 1)),
		}, 8},
		{"states of longer blocks", []Event{full, in(1, "mamba", sized(16, stored(0, 8, 1)))}, 8},
		{"of which the last is gone", []Event{
			full, in(1, "mamba", sized(16, stored(0, 8, 1))), gone(1, 7),
		}, 4},
		{"one state for all 32 tokens", []Event{full, in(1, "mamba", sized(32, stored(0, 8, 1)))}, 8},
		{"a state inside a block is of no use", []Event{
			full, part(1, "mamba"),
		}, 0},
		{"a window with all its blocks", []Event{full, slide(6, 7)}, 8},
		{"a window with a hole", []Event{full, slide(2, 3, 5, 7)}, 4},
		{"a window of which a block is gone", []Event{full, slide(2, 3, 6, 7), gone(1, 6)}, 4},
		{"a window that begins with the prompt", []Event{full, slide(0)}, 1},
		{"a window and a state", []Event{full, slide(2, 3, 6, 7), mamba(2, 3)}, 4},
		{"a window and a state that never meet", []Event{full, slide(6, 7), mamba(2, 3)}, 0},
		{"full attention of longer blocks beside ours", []Event{
			full, in(1, "full_attention", sized(16, stored(0, 8, 1))),
		}, 8},
		{"of which the first is gone", []Event{
			full, in(1, "full_attention", sized(16, stored(0, 8, 1))), gone(1, 3),
		}, 0},
		{"part of a block of full attention changes nothing", []Event{
			full, part(0, "full_attention"),
		}, 8},
		{"cleared, the groups stay", []Event{full, mamba(1, 7), {Kind: Cleared, Group: NoGroup}, full}, 0},
		{"a state that is told before a clear goes with it", []Event{
			mamba(1, 7), {Kind: Cleared, Group: NoGroup}, full,
		}, 0},
		{"cross attention says nothing", []Event{
			full, keeps(in(1, "cross_attention", stored(0, 8, 1)), 7),
		}, 8},
		{"a kind that nobody knows needs its last block", []Event{
			full, keeps(in(1, "linear_attention", stored(0, 8, 1)), 4),
		}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ix := NewIndex(Options{Chain: testChain})
			ix.Apply(0, &Batch{Events: tt.events})
			checkIndex(t, ix)
			if got := depthOf(ix, 0, promptKeys(8, 1)); got != tt.want {
				t.Errorf("depth %d, want %d", got, tt.want)
			}
			w := newTwin(testChain)
			w.apply(0, &Batch{Events: tt.events})
			if got := w.depth(0, promptKeys(8, 1)); int(got) != tt.want {
				t.Errorf("depth of the twin %d, want %d", got, tt.want)
			}
		})
	}
}

// A prompt that is being computed is assumed to be there as a whole: a hybrid model keeps nothing of the way
// to its end.
func TestGuessOfAHybridModelCountsWhole(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{
		in(0, "full_attention", stored(0, 1, 2)), keeps(in(1, "mamba", stored(0, 1, 2))),
	}})
	ix.Speculate(0, promptKeys(8, 1), time.Unix(1, 0))
	if got := depthOf(ix, 0, promptKeys(12, 1)); got != 8 {
		t.Errorf("a longer prompt finds %d blocks, want 8", got)
	}
	if got := depthOf(ix, 0, promptKeys(5, 1)); got != 0 {
		t.Errorf("the beginning of it finds %d blocks, want none", got)
	}
}

func TestOffloadTiers(t *testing.T) {
	full := in(0, "full_attention", stored(0, 2, 1))
	evicted := in(0, "", removed(hashes(0, 2, 1)...))
	slide := keeps(window(8, in(1, "sliding_window", stored(0, 2, 1))), 0, 1)
	slideOut := inCPU(in(1, "", removed(hashes(0, 2, 1)...)))
	unnamed := func(e Event) Event { return in(NoGroup, e.SpecKind, e) }
	salted := with(full, func(e *Event) { e.Salt = "a" })
	bare := with(inCPU(full), func(e *Event) { e.Bare = true })
	lmcache := with(inCPU(stored(0, 2, 1)), func(e *Event) { e.Group, e.SpecKind = NoGroup, "" })
	for _, tt := range []struct {
		name   string
		events []Event
		want   int // of 2 blocks of prompt 1
	}{
		{"chunks outlive the GPU", []Event{full, chunk(0, 0), chunk(0, 1), evicted}, 2},
		{"each is taken back", []Event{full, chunk(0, 0), chunk(0, 1), evicted, inCPU(evicted)}, 0},
		{"a sliding window's chunk is no whole block", []Event{
			full, slide, chunk(1, 0), chunk(1, 1), evicted,
		}, 0},
		{"another group's chunks go by themselves", []Event{
			full, slide, chunk(0, 0), chunk(0, 1), chunk(1, 0), chunk(1, 1),
			evicted, inCPU(evicted), slideOut,
		}, 0},
		{"and leave the whole group's", []Event{
			full, slide, chunk(0, 0), chunk(0, 1), chunk(1, 0), chunk(1, 1), evicted, slideOut,
		}, 2},
		{"a chunk of a group never seen counts nowhere", []Event{full, chunk(3, 0), evicted}, 0},
		{"a store without extra keys says which known block it is", []Event{full, bare, evicted}, 2},
		{"and of an unknown one nothing, since the prompt may have been salted", []Event{
			salted, evicted, bare,
		}, 0},
		{"a salted block keeps its content", []Event{salted, bare, evicted}, 0},
		{"one that names no group where groups are named", []Event{full, lmcache, evicted}, 0},
		{"nor does it hide what is there", []Event{lmcache, full}, 2},
		{"where no group is named it counts", []Event{
			unnamed(full), lmcache, unnamed(evicted),
		}, 2},
		{"a removal that names no group", []Event{
			full, chunk(0, 0), evicted, inCPU(in(NoGroup, "", removed(hashes(0, 1, 1)...))),
		}, 0},
		{"cleared", []Event{full, chunk(0, 0), chunk(0, 1), {Kind: Cleared, Group: NoGroup}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ix := NewIndex(Options{Chain: testChain})
			ix.Apply(0, &Batch{Events: tt.events})
			checkIndex(t, ix)
			if got := depthOf(ix, 0, promptKeys(2, 1)); got != tt.want {
				t.Errorf("depth %d, want %d", got, tt.want)
			}
		})
	}
}

// The last whole block on the GPU goes when its group turns out to be a thin group.
func TestGroupTurnsThinWithItsLastBlock(t *testing.T) {
	prompt := path{blocks: []byte{0, 1}}
	second := in(1, "", prompt.stored(0, 0))
	turns := in(1, "sliding_window", prompt.stored(0, 0))
	below := in(0, "", prompt.stored(0, 0))
	below.Tier = CPU
	gone := in(0, "", Event{Kind: Removed, Hashes: []EngineHash{prompt.hash(2, 0), prompt.hash(1, 0)}})
	for _, events := range [][]Event{
		{in(0, "", prompt.stored(0, 0)), below, second, gone, turns},
		{in(0, "", prompt.stored(0, 0)), below, second, gone, turns, second},
	} {
		m := newModel(0)
		for _, e := range events {
			b := &Batch{Events: []Event{e}}
			if got, want := m.index.Apply(0, b), m.twin.apply(0, b); got != want {
				t.Fatalf("Apply(%+v) = %+v, want %+v", e, got, want)
			}
			checkIndex(t, m.index)
			m.compare(t, func(got, want int32) bool { return got == want })
		}
	}
}

func TestHybridMatchDoesNotAllocate(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	ix.Apply(0, &Batch{Events: []Event{
		in(0, "full_attention", stored(0, 500, 1)), keeps(in(1, "mamba", stored(0, 500, 1)), 99, 499),
	}})
	keys, depth := promptKeys(450, 1), make([]int32, 1)
	if n := testing.AllocsPerRun(100, func() { ix.Match(keys, depth) }); n > 0 || depth[0] != 100 {
		t.Errorf("%v allocations, depth %d, want none and 100", n, depth[0])
	}
}

func BenchmarkMatchHybrid(b *testing.B) {
	ix := NewIndex(Options{Chain: testChain})
	full, slide := stored(0, 6000, 1), window(32, in(1, "sliding_window", stored(0, 6000, 1)))
	for h := range Holder(64) {
		ix.Apply(h, &Batch{Events: []Event{
			full, keeps(slide, 5000, 5001, 5002, 5003, 5004, 5005, 5006, 5007),
		}})
	}
	keys, depth := promptKeys(6000, 1), make([]int32, 64)
	b.ReportAllocs()
	for b.Loop() {
		ix.Match(keys, depth)
	}
}
