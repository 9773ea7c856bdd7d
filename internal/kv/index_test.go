package kv

import (
	"slices"
	"sync"
	"testing"
)

// Blocks of the tables below hold four tokens.
var testChain = NewChain("m", 4)

// prompt is n blocks of tokens; other seeds share nothing with it.
func prompt(n int, seed Token) []Token {
	tokens := make([]Token, 4*n)
	for i := range tokens {
		tokens[i] = seed + Token(i)
	}
	return tokens
}

func promptKeys(n int, seed Token) []Key {
	return testChain.Append(nil, testChain.Root("", ""), prompt(n, seed))
}

// hashes names blocks from to to as an engine would: 1000*seed + number.
func hashes(from, to int, seed Token) (h []EngineHash) {
	for i := from; i < to; i++ {
		h = append(h, EngineHash(1000*int(seed)+i+1))
	}
	return h
}

// stored announces the blocks from to to of prompt seed.
func stored(from, to int, seed Token) Event {
	e := Event{
		Kind: Stored, Hashes: hashes(from, to, seed), Tokens: prompt(to, seed)[4*from:],
		BlockSize: 4, Group: 0, SpecKind: "full_attention",
	}
	if from > 0 {
		e.Parent, e.HasParent = hashes(from-1, from, seed)[0], true
	}
	return e
}

func removed(blocks ...EngineHash) Event { return Event{Kind: Removed, Hashes: blocks} }

// placeholder announces blocks of prompt 1 in an offload tier that tells no tokens.
func placeholder(from, to int) Event {
	return Event{Kind: Stored, Hashes: hashes(from, to, 1), Tier: CPU, Group: 0}
}

// with returns e after edit.
func with(e Event, edit func(*Event)) Event {
	edit(&e)
	return e
}

func depthOf(ix *Index, h Holder, keys []Key) int {
	depth := make([]int32, int(h)+1)
	ix.Match(keys, depth)
	return int(depth[h])
}

func TestDepthAfterEvents(t *testing.T) {
	onCPU := func(e *Event) { e.Tier = CPU }
	inGroup := func(g int) func(*Event) { return func(e *Event) { e.Group = g } }
	cleared := Event{Kind: Cleared}
	for _, tt := range []struct {
		name   string
		events []Event
		want   int // of the 8 blocks of prompt 1
	}{
		{"nothing", nil, 0},
		{"8 chained blocks match 8", []Event{stored(0, 8, 1)}, 8},
		{"8 blocks in 8 events", []Event{
			stored(0, 1, 1), stored(1, 2, 1), stored(2, 3, 1), stored(3, 4, 1), stored(4, 5, 1), stored(5, 6, 1),
			stored(6, 7, 1), stored(7, 8, 1),
		}, 8},
		{"more than asked for", []Event{stored(0, 12, 1)}, 8},
		{"an orphan never becomes a root", []Event{stored(3, 8, 1)}, 0},
		{"an orphan is not kept until its parent comes", []Event{stored(3, 8, 1), stored(0, 3, 1)}, 3},
		{"a holder of block 3 only has depth 0", []Event{stored(0, 4, 1), removed(hashes(0, 3, 1)...)}, 0},
		{"blocks stored behind a hole count once it is filled", []Event{
			stored(0, 3, 1), removed(hashes(1, 2, 1)...), stored(3, 8, 1), stored(1, 2, 1),
		}, 8},
		{"a hole in the middle ends the match", []Event{stored(0, 8, 1), removed(hashes(4, 5, 1)...)}, 4},
		{"the hole filled again", []Event{stored(0, 8, 1), removed(hashes(4, 5, 1)...), stored(4, 5, 1)}, 8},
		{"block 0 gone and back", []Event{stored(0, 8, 1), removed(hashes(0, 1, 1)...), stored(0, 1, 1)}, 8},
		{"one of two holes filled", []Event{
			stored(0, 8, 1), removed(hashes(2, 3, 1)...), removed(hashes(5, 6, 1)...), stored(2, 3, 1),
		}, 5},
		{
			"stored twice and removed once is still there",
			[]Event{stored(0, 8, 1), stored(7, 8, 1), removed(hashes(7, 8, 1)...)},
			8,
		},
		{"stored twice and removed twice is gone", []Event{
			stored(0, 8, 1), stored(7, 8, 1), removed(hashes(7, 8, 1)...), removed(hashes(7, 8, 1)...),
		}, 7},
		{"removed twice and stored once is there", []Event{
			stored(0, 8, 1), removed(hashes(7, 8, 1)...), removed(hashes(7, 8, 1)...), stored(7, 8, 1),
		}, 8},
		{"evicted from the tail", []Event{
			stored(0, 8, 1), removed(hashes(7, 8, 1)...), removed(hashes(6, 7, 1)...), removed(hashes(5, 6, 1)...),
		}, 5},
		{"cleared", []Event{stored(0, 8, 1), cleared}, 0},
		{"cleared and stored in one batch", []Event{stored(0, 8, 1), cleared, stored(0, 2, 1)}, 2},
		{"a parent from before the clear is unknown", []Event{stored(0, 8, 1), cleared, stored(4, 8, 1)}, 0},
		{"a clear leaves nothing in the CPU tier", []Event{
			stored(0, 8, 1), with(stored(0, 3, 1), onCPU), cleared,
		}, 0},
		{
			"a removal from the GPU leaves the CPU tier",
			[]Event{stored(0, 8, 1), with(stored(2, 3, 1), onCPU), removed(hashes(2, 3, 1)...)},
			8,
		},
		{
			"a removal from a tier without the block does nothing",
			[]Event{stored(0, 8, 1), with(removed(hashes(2, 3, 1)...), onCPU)},
			8,
		},
		{"two groups that both have all", []Event{stored(0, 8, 1), with(stored(0, 8, 1), inGroup(1))}, 8},
		{"two groups, one has less", []Event{stored(0, 8, 1), with(stored(0, 3, 1), inGroup(1))}, 3},
		{
			"two groups, removed from one",
			[]Event{stored(0, 8, 1), with(stored(0, 8, 1), inGroup(1)), removed(hashes(2, 3, 1)...)},
			2,
		},
		{"two groups, all removed from one", []Event{
			with(stored(0, 1, 1), inGroup(1)), stored(0, 8, 1), with(removed(hashes(0, 1, 1)...), inGroup(1)),
		}, 0},
		{"a group that turns out to mask blocks", []Event{
			stored(0, 8, 1), with(stored(0, 8, 1), inGroup(1)),
			with(stored(8, 12, 1), func(e *Event) {
				e.Group = 1
				e.SpecKind = ""
				e.Hashes = e.Hashes[2:]
			}),
			with(removed(hashes(0, 3, 1)...), inGroup(1)),
		}, 0},
		{"and has the last of our blocks", []Event{
			stored(0, 8, 1),
			with(stored(0, 8, 1), func(e *Event) {
				e.Group = 1
				e.SpecKind = ""
				e.Hashes = e.Hashes[7:]
			}),
		}, 8},
		{"a removal from a sliding window", []Event{
			stored(0, 8, 1), with(stored(0, 8, 1), func(e *Event) { e.Group, e.SpecKind = 1, "sliding_window" }),
			with(removed(hashes(0, 3, 1)...), func(e *Event) { e.Group = 1 }),
		}, 8},
		{
			"a removal from a group that was never stored",
			[]Event{stored(0, 8, 1), with(removed(hashes(2, 3, 1)...), inGroup(1))},
			8,
		},
		{
			"a removal that names no group",
			[]Event{stored(0, 8, 1), with(removed(hashes(2, 3, 1)...), inGroup(NoGroup))},
			2,
		},
		{
			"a store that named no group",
			[]Event{with(stored(0, 8, 1), inGroup(NoGroup)), removed(hashes(2, 3, 1)...)},
			2,
		},
		{
			"masked blocks are skipped", []Event{with(stored(0, 8, 1), func(e *Event) { e.Hashes = e.Hashes[2:] })}, 0,
		},
		{"no hashes", []Event{with(stored(0, 8, 1), func(e *Event) { e.Hashes = nil })}, 0},
		{"a placeholder", []Event{placeholder(0, 1)}, 0},
		{
			"a placeholder of what is known outlives the GPU",
			[]Event{stored(0, 8, 1), placeholder(0, 3), removed(hashes(0, 5, 1)...)},
			3,
		},
		{"a placeholder taken back", []Event{
			stored(0, 8, 1), placeholder(0, 3), removed(hashes(0, 5, 1)...), with(removed(hashes(1, 2, 1)...), onCPU),
		}, 1},
		{
			"another block size",
			[]Event{with(stored(0, 8, 1), func(e *Event) { e.Hashes, e.BlockSize = e.Hashes[:4], 8 })},
			0,
		},
		{"a sliding window", []Event{with(stored(0, 8, 1), func(e *Event) { e.SpecKind = "sliding_window" })}, 0},
		{"MLA", []Event{with(stored(0, 8, 1), func(e *Event) { e.SpecKind = "mla_attention" })}, 8},
		{"a kind unsaid", []Event{with(stored(0, 8, 1), func(e *Event) { e.SpecKind = "" })}, 8},
		{"under an adapter", []Event{with(stored(0, 8, 1), func(e *Event) { e.LoRA = "a" })}, 0},
		{"under a salt", []Event{with(stored(0, 8, 1), func(e *Event) { e.Salt = "a" })}, 0},
		{
			"an image in block 2",
			[]Event{with(stored(0, 8, 1), func(e *Event) { e.Extra = make([][]byte, 8); e.Extra[2] = []byte("i") })},
			2,
		},
		{
			"extras that do not fit the blocks",
			[]Event{with(stored(0, 8, 1), func(e *Event) { e.Extra = make([][]byte, 7) })},
			0,
		},
		{
			"a hash that names another content",
			[]Event{stored(0, 8, 1), with(stored(0, 1, 2), func(e *Event) { e.Hashes = hashes(3, 4, 1) })},
			8,
		},
		{"an event of no kind", []Event{with(stored(0, 8, 1), func(e *Event) { e.Kind = 0 })}, 0},
		{"a tier of the future", []Event{with(stored(0, 8, 1), func(e *Event) { e.Tier = 200 })}, 8},
		{"a group beyond any", []Event{with(stored(0, 8, 1), func(e *Event) { e.Group = 1 << 40 })}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ix := NewIndex(Options{Chain: testChain})
			ix.Apply(3, &Batch{Events: tt.events})
			if got := depthOf(ix, 3, promptKeys(8, 1)); got != tt.want {
				t.Errorf("depth %d, want %d", got, tt.want)
			}
			if got := depthOf(ix, 4, promptKeys(8, 1)); got != 0 {
				t.Errorf("another holder has depth %d", got)
			}
		})
	}
}

func TestApplyCounts(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for _, tt := range []struct {
		name  string
		event Event
		want  Applied
	}{
		{"stored", stored(0, 8, 1), Applied{Stored: 8}},
		{"stored again", stored(6, 8, 1), Applied{Stored: 2}},
		{"orphans", stored(2, 5, 2), Applied{Orphans: 3}},
		{"masked", with(stored(0, 8, 3), func(e *Event) { e.Hashes = e.Hashes[5:] }), Applied{Skipped: 3}},
		{"removed, one unknown", removed(1008, 1007, 9999), Applied{Removed: 2}},
		{"cleared", Event{Kind: Cleared}, Applied{Removed: 8}},
		{"cleared again", Event{Kind: Cleared}, Applied{}},
	} {
		if got := ix.Apply(0, &Batch{Events: []Event{tt.event}}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if s := ix.Stats(); s.Orphans != 3 || s.Memberships != 0 || s.Blocks != 0 {
		t.Errorf("stats %+v, want 3 orphans and nothing else", s)
	}
}

func TestAdapterAndSaltNeverMix(t *testing.T) {
	roots := [][2]string{{"", ""}, {"x", ""}, {"", "x"}, {"x", "x"}, {"y", ""}}
	ix := NewIndex(Options{Chain: testChain})
	for i, r := range roots {
		e := with(stored(0, 8, 1), func(e *Event) { e.LoRA, e.Salt = r[0], r[1] })
		ix.Apply(Holder(i), &Batch{Events: []Event{e}})
	}
	for i, r := range roots {
		keys := testChain.Append(nil, testChain.Root(r[0], r[1]), prompt(8, 1))
		depth := make([]int32, len(roots))
		ix.Match(keys, depth)
		want := make([]int32, len(roots))
		want[i] = 8
		if !slices.Equal(depth, want) {
			t.Errorf("adapter %q, salt %q: depths %v, want %v", r[0], r[1], depth, want)
		}
	}
}

// Two engine hashes for one content, as after an adapter was loaded again from another path: the block stays
// until both are gone.
func TestTwoHashesOfOneContent(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	keys := promptKeys(1, 1)
	other := with(stored(0, 1, 1), func(e *Event) { e.Hashes = []EngineHash{77} })
	third := with(stored(0, 1, 1), func(e *Event) { e.Hashes = []EngineHash{78} })
	ix.Apply(0, &Batch{Events: []Event{stored(0, 1, 1), other, third}})
	for i, hash := range []EngineHash{77, 1001, 78} {
		if got := depthOf(ix, 0, keys); got != 1 {
			t.Errorf("with %d of 3 removed: depth %d, want 1", i, got)
		}
		ix.Apply(0, &Batch{Events: []Event{removed(hash)}})
	}
	if got := depthOf(ix, 0, keys); got != 0 {
		t.Errorf("with all removed: depth %d, want 0", got)
	}
}

func TestForget(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for h := range Holder(3) {
		ix.Apply(h, &Batch{Events: []Event{stored(0, 8, 1), stored(4, 8, 2)}})
	}
	ix.Forget(1)
	ix.Forget(1)
	ix.Forget(500)
	depth := make([]int32, 3)
	ix.Match(promptKeys(8, 1), depth)
	if want := []int32{8, 0, 8}; !slices.Equal(depth, want) {
		t.Errorf("depths %v, want %v", depth, want)
	}
	ix.Forget(0)
	ix.Forget(2)
	if s := ix.Stats(); s.Memberships != 0 || s.Blocks != 0 || s.Bytes != 0 || len(s.Holders) != 0 ||
		s.Orphans != 12 {
		t.Errorf("stats %+v, want nothing but 12 orphans", s)
	}
}

func TestCopiesStopCountingOnTheSafeSide(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	var b Batch
	for range 1000 {
		b.Events = append(b.Events, stored(0, 1, 1))
	}
	ix.Apply(0, &b)
	b.Events = b.Events[:0]
	for range 255 {
		b.Events = append(b.Events, removed(1001))
	}
	ix.Apply(0, &b)
	if got := depthOf(ix, 0, promptKeys(1, 1)); got != 0 {
		t.Errorf("depth %d after as many removals as are counted, want 0", got)
	}
}

func TestMatchIgnoresHoldersBeyondDepth(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	for _, h := range []Holder{0, 5, 63, 64, 127, 128, 1000} {
		ix.Apply(h, &Batch{Events: []Event{stored(0, 8, 1)}})
	}
	ix.Speculate(999, promptKeys(8, 1), someday)
	for _, n := range []int{0, 1, 5, 6, 63, 64, 65, 128, 129, 1000, 1001, 2000} {
		depth := slices.Repeat([]int32{-1}, n)
		ix.Match(promptKeys(8, 1), depth)
		for h, got := range depth {
			want := int32(0)
			if slices.Contains([]int{0, 5, 63, 64, 127, 128, 999, 1000}, h) {
				want = 8
			}
			if got != want {
				t.Errorf("%d holders asked for: holder %d has depth %d, want %d", n, h, got, want)
			}
		}
	}
}

func TestMatchOfNoKeys(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	depth := []int32{7}
	if ix.Match(nil, depth); depth[0] != 0 {
		t.Errorf("depth %d of no keys", depth[0])
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	ix, keys := halfMatched(64, 512, true)
	ix.Speculate(3, keys, someday)
	depth := make([]int32, 64)
	if n := testing.AllocsPerRun(10, func() { ix.Match(keys, depth) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Readers and writers at once, for the race detector; and a reader never sees more than there is.
func TestConcurrentUse(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain, ByteBudget: 500_000})
	keys := promptKeys(600, 1)
	both := &Batch{Events: []Event{stored(0, 300, 1), stored(300, 600, 1)}}
	var wg sync.WaitGroup
	for h := range Holder(2) {
		wg.Go(func() {
			for range 100 {
				ix.Apply(h, both)
				ix.Speculate(2, keys, someday)
				ix.Apply(h, &Batch{Events: []Event{removed(hashes(100, 600, 1)...)}})
				ix.Apply(h+3, &Batch{Events: []Event{stored(0, 3000, 9_000_000*Token(h+1))}})
				ix.Forget(h)
				ix.Assume(5, keys, 400)
				ix.Expire(someday)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			depth := make([]int32, 8)
			for range 500 {
				ix.Match(keys, depth)
				if depth[3] > 0 || depth[4] > 0 || slices.Max(depth) > 600 {
					t.Errorf("depths %v of 600 blocks that holders 3 and 4 never had", depth)
				}
				ix.Stats()
			}
		})
	}
	wg.Wait()
	checkIndex(t, ix)
}

// A block counts in any tier, until the last tier has lost it.
func TestBlocksInSeveralTiers(t *testing.T) {
	onCPU := func(e *Event) { e.Tier = CPU }
	for _, tt := range []struct {
		name   string
		events []Event
		want   int32
	}{
		{"all on the GPU", []Event{stored(0, 8, 1)}, 8},
		{"the beginning on both", []Event{stored(0, 8, 1), with(stored(0, 3, 1), onCPU)}, 8},
		{
			"the end on the CPU alone",
			[]Event{stored(0, 8, 1), with(stored(0, 8, 1), onCPU), removed(hashes(5, 8, 1)...)},
			8,
		},
		{
			"the beginning on the CPU alone",
			[]Event{stored(0, 8, 1), with(stored(0, 3, 1), onCPU), removed(hashes(0, 3, 1)...)},
			8,
		},
		{"cleared", []Event{stored(0, 8, 1), with(stored(0, 3, 1), onCPU), {Kind: Cleared}}, 0},
		{
			"cleared on the CPU",
			[]Event{stored(0, 8, 1), with(stored(0, 3, 1), onCPU), {Kind: Cleared, Tier: CPU}},
			8,
		},
		{"the CPU first", []Event{with(stored(0, 3, 1), onCPU), stored(0, 8, 1)}, 8},
		{"two engine hashes on two tiers", []Event{
			stored(0, 8, 1), with(stored(0, 2, 1), func(e *Event) { e.Tier, e.Hashes = CPU, []EngineHash{71, 72} }),
			removed(hashes(1, 2, 1)...),
		}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ix := NewIndex(Options{Chain: testChain})
			ix.Apply(1, &Batch{Events: tt.events})
			checkIndex(t, ix)
			depth := make([]int32, 2)
			if ix.Match(promptKeys(8, 1), depth); depth[1] != tt.want {
				t.Errorf("depth %d, want %d", depth[1], tt.want)
			}
		})
	}
}

// Many columns, so that a walk needs several goes, each with its own end.
func TestManyHolders(t *testing.T) {
	const holders = 1500
	ix := NewIndex(Options{Chain: testChain})
	for h := range Holder(holders) {
		ix.Apply(h, &Batch{Events: []Event{stored(0, 1+int(h)%200, 1)}})
	}
	checkIndex(t, ix)
	depth := make([]int32, holders)
	ix.Match(promptKeys(150, 1), depth)
	for h, got := range depth {
		if want := int32(min(150, 1+h%200)); got != want {
			t.Errorf("holder %d: depth %d, want %d", h, got, want)
		}
	}
}

// Each holder has a chain of its own: equal tokens in blocks of two sizes are found by the right chain only.
// A holder with another chain begins anew.
func TestChainOfAHolder(t *testing.T) {
	ix := NewIndex(Options{})
	chains := []Chain{testChain, NewChain("m", 8)}
	event := func(size int) *Batch {
		e := stored(0, 8, 1)
		e.BlockSize, e.Hashes = size, e.Hashes[:32/size]
		return &Batch{Events: []Event{e}}
	}
	for i, c := range chains {
		h := Holder(i)
		if got := ix.Apply(h, event(c.size)); got.Skipped != 32/c.size {
			t.Errorf("without a chain: %+v", got)
		}
		ix.Name(h, c)
		ix.Apply(h, event(c.size))
		ix.Name(h, c)
	}
	for i, c := range chains {
		keys, depth := c.Append(nil, c.Root("", ""), prompt(8, 1)), make([]int32, 2)
		if ix.Match(keys, depth); int(depth[i]) != len(keys) || depth[1-i] != 0 {
			t.Errorf("depths %v by blocks of %d, want %d at holder %d only", depth, c.size, len(keys), i)
		}
	}
	ix.Name(0, chains[1])
	if s := ix.Stats(); s.Memberships != 4 {
		t.Errorf("%d blocks, want the 4 of holder 1", s.Memberships)
	}
	if got := ix.Apply(0, event(8)); got.Stored != 4 {
		t.Errorf("with another chain: %+v", got)
	}
}
