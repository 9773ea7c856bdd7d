package roster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

func approximate(ids ...replica.ID) *Roster[*plain] {
	r := newRoster(ids...)
	r.SetIndexing(Indexing{Mode: Approximate, ChunkBytes: 64, CharsPerToken: 4})
	return r
}

func (r *Roster[M]) computed(i int, tokens []uint32, believed, cached int) {
	r.RecordComputed(r.members.All[i].member(), Prompt{Keys: r.keys(tokens)}, believed, cached)
}

func TestWhatWasComputedIsThere(t *testing.T) {
	r := approximate("a", "b")
	ids := count(100)
	if got := r.depths(r.keys(ids)); got[0] != 0 || got[1] != 0 {
		t.Fatalf("depths %v of what nobody had", got)
	}
	r.computed(1, ids, 0, 0)
	if got := r.depths(r.keys(count(150))); got[0] != 0 || got[1] != 6 {
		t.Errorf("depths %v, want 0 and 6", got)
	}
	m := &r.members.All[1].Member
	for _, tt := range []struct{ tokens, want int }{{150, 96}, {97, 96}, {96, 80}, {1, 0}} {
		matches := r.Matches(r.depths(r.keys(count(150))), Prompt{Tokens: tt.tokens})
		if got := matches.Tokens(m); got != tt.want {
			t.Errorf("of %d tokens %d are held, want %d", tt.tokens, got, tt.want)
		}
	}
	r.Forget("b")
	if got := r.depths(r.keys(ids)); got[1] != 0 {
		t.Errorf("depths %v after a restart", got)
	}
}

func TestCapacityEvictsTheLeastRecentlyUsed(t *testing.T) {
	r := approximate("a")
	prompt := func(n uint32) []uint32 { // 100 blocks that no other prompt shares
		ids := count(1600)
		for i := range ids {
			ids[i] += n * 10_000
		}
		return ids
	}
	for n := range uint32(10) { // the replica has 1000 blocks
		r.computed(0, prompt(n), 0, -1)
	}
	r.computed(0, prompt(0), 1600, 1600)
	r.computed(0, prompt(10), 0, 0)
	kept := 0
	for n := range uint32(11) {
		kept += int(r.depths(r.keys(prompt(n)))[0])
	}
	first := r.depths(r.keys(prompt(0)))[0]
	second := r.depths(r.keys(prompt(1)))[0]
	last := r.depths(r.keys(prompt(10)))[0]
	if first != 100 || last != 100 || second != 0 {
		t.Errorf("of the prompt that was used again %d blocks are kept, of the one that was not %d, of the "+
			"newest %d, want 100, 0, 100", first, second, last)
	}
	if kept > 1000 || kept < 800 {
		t.Errorf("%d blocks are kept of 1000", kept)
	}
}

// TestTheEngineCorrects gives two prompts that share 4 blocks. When the engine finds only 2 of the first, the
// end of the second is gone too.
func TestTheEngineCorrects(t *testing.T) {
	for _, tt := range []struct {
		name             string
		believed, cached int
		want             int32 // blocks of the second prompt
	}{
		{"as believed", 112, 112, 8},
		{"more than believed", 64, 112, 8},
		{"unknown", 112, -1, 8},
		{"two blocks", 112, 32, 4}, // what they share was computed again
		{"nothing", 112, 0, 4},
		{"the last block of the first alone", 112, 96, 8},
	} {
		r := approximate("a")
		first, second := count(128), count(128)
		for i := 64; i < 128; i++ {
			second[i] += 1000
		}
		r.computed(0, first, 0, 0)
		r.computed(0, second, 0, 64)
		r.computed(0, first, tt.believed, tt.cached)
		if a, b := r.depths(r.keys(first))[0], r.depths(r.keys(second))[0]; a != 8 || b != tt.want {
			t.Errorf("%s: %d blocks of the first prompt and %d of the second, want 8 and %d", tt.name, a, b, tt.want)
		}
	}
}

func TestWhoIsApproximated(t *testing.T) {
	source := replica.EventSource{Endpoint: "tcp://a:1"}
	for _, tt := range []struct {
		name  string
		mode  Mode
		facts func(*replica.Facts)
		trust replica.Trust
		want  replica.Trust
		note  string
		depth int32
	}{
		{"follows events", Events, func(f *replica.Facts) { f.Events = source }, replica.Live, replica.Live, "", 0},
		{
			"not heard yet", Events, func(f *replica.Facts) { f.Events = source }, replica.TrustUnknown,
			replica.TrustUnknown, "", 0,
		},
		{
			"publishes none", Events, nil, replica.TrustUnknown, replica.Approximate, "the engine publishes no events",
			4,
		},
		{
			"approximate by choice", Approximate, func(f *replica.Facts) { f.Events = source }, replica.Live,
			replica.Approximate, "", 4,
		},
		{"off", Off, nil, replica.TrustUnknown, replica.Off, "", 0},
		{
			"keeps no prefixes", Approximate, func(f *replica.Facts) { f.CacheDType = "auto" }, replica.TrustUnknown,
			replica.Approximate,
			"the engine keeps no prefixes: its prefix caching is off", 0,
		},
		{
			"says that it keeps them", Approximate,
			func(f *replica.Facts) { f.CacheDType, f.PrefixCaching = "auto", true }, replica.TrustUnknown,
			replica.Approximate, "", 4,
		},
	} {
		rs := engines("a")
		if tt.facts != nil {
			tt.facts(&rs[0].Facts)
		}
		r, _ := New(Options{}, func() *plain { return new(plain) })
		r.SetIndexing(Indexing{Mode: tt.mode})
		r.SetMembers(rs, start)
		r.SetTrust("a", tt.trust)
		keys := kv.NewChain("", 16).Append(nil, kv.NewChain("", 16).Root("", ""), count(64))
		r.RecordComputed(&r.members.All[0].Member, Prompt{Keys: keys}, 0, 0)
		s := r.Status(&r.members.All[0].Member, r.Counts())
		if got := r.depths(keys)[0]; got != tt.depth || s.Trust != tt.want || s.Note != tt.note ||
			s.Blocks != int(tt.depth) {
			t.Errorf("%s: depth %d, %+v, want %d, %v, %q", tt.name, got, s, tt.depth, tt.want, tt.note)
		}
		if _, _, ok := r.Chain("m"); ok != (tt.mode != Off) {
			t.Errorf("%s: blocks are named: %v", tt.name, ok)
		}
	}
}

// Speculation holds in every mode for as long as a prompt should take, and no longer.
func TestSpeculationIsShort(t *testing.T) {
	r := approximate("a")
	keys := r.keys(count(64))
	r.Speculate(&r.members.All[0].Member, Prompt{Keys: keys}, time.Second, start)
	r.Expire(start.Add(3 * time.Second))
	if got := r.depths(keys)[0]; got != 4 {
		t.Errorf("depth %d while it is computed, want 4", got)
	}
	r.Expire(start.Add(5 * time.Second))
	if got := r.depths(keys)[0]; got != 0 {
		t.Errorf("depth %d of a prompt that never was answered", got)
	}
}

func TestAnotherModeForgets(t *testing.T) {
	for _, to := range []Mode{Events, Off} {
		r := approximate("a")
		keys := r.keys(count(64))
		r.computed(0, count(64), 0, 0)
		r.SetIndexing(Indexing{Mode: Approximate, ChunkBytes: 64, CharsPerToken: 4})
		if got := r.depths(keys)[0]; got != 4 {
			t.Fatalf("the same mode again: depth %d, want 4", got)
		}
		r.SetIndexing(Indexing{Mode: to})
		if got := r.depths(keys)[0]; got != 0 {
			t.Errorf("%v: depth %d, want nothing known", to, got)
		}
		r.computed(0, count(64), 0, 0)
		r.SetIndexing(Indexing{Mode: Approximate})
		if got := r.depths(keys)[0]; got != 0 {
			t.Errorf("back from %v: depth %d, want nothing known", to, got)
		}
	}
}

// What was assumed goes when events begin, since they will never take it away.
func TestEventsReplaceAssumptions(t *testing.T) {
	r := newRoster("a")
	r.computed(0, count(64), 0, 0)
	keys := r.keys(count(64))
	if got := r.depths(keys)[0]; got != 4 {
		t.Fatalf("depth %d of an approximated replica, want 4", got)
	}
	rs := engines("a")
	rs[0].Facts.Events = replica.EventSource{Endpoint: "tcp://a:1"}
	r.SetMembers(rs, start)
	if got := r.depths(keys)[0]; got != 0 {
		t.Errorf("depth %d when events begin", got)
	}
	r.computed(0, count(64), 0, 0)
	if got := r.depths(keys)[0]; got != 0 {
		t.Errorf("depth %d assumed of a replica whose events are followed", got)
	}
	r.Apply("a", stored(16, count(32)))
	if got := r.depths(keys)[0]; got != 2 {
		t.Errorf("depth %d by events, want 2", got)
	}
	r.SetIndexing(Indexing{Mode: Approximate})
	if got := r.Apply("a", stored(16, count(32))); got != (kv.Applied{}) {
		t.Errorf("events of an approximated pool did %+v", got)
	}
}

func (r *Roster[M]) textKeys(text string) Prompt {
	chain, adapter, per, _ := r.TextChain("m")
	return Prompt{Keys: chain.Append(nil, chain.Root(adapter, ""), []byte(text)), Chunk: per}
}

func TestText(t *testing.T) {
	r := newRoster("a", "b")
	if _, _, _, ok := r.TextChain("m"); ok {
		t.Fatal("text is named though none is matched")
	}
	r.SetIndexing(Indexing{ChunkBytes: 64, CharsPerToken: 4})
	turn := string(make([]byte, 640)) // 10 chunks, some 160 tokens
	p := r.textKeys(turn)
	if p.Chunk != 16 {
		t.Errorf("%v tokens a chunk, want 16", p.Chunk)
	}
	look := func(p Prompt) []int32 {
		depth := make([]int32, r.Holders())
		r.Match(p, depth)
		return depth
	}
	r.SetTrust("b", replica.Stale) // which says something of its blocks, and nothing of what it was sent
	r.Remember("b", p)
	r.Remember("nobody", p)
	longer := r.textKeys(turn + "and then")
	if got := look(longer); got[0] != 0 || got[1] != 10 {
		t.Errorf("depths %v, want 0 and 10", got)
	}
	matches := r.Matches(look(longer), Prompt{Tokens: 162, Chunk: longer.Chunk})
	if got := matches.Tokens(&r.members.All[1].Member); got != 160 {
		t.Errorf("%d tokens held, want 160", got)
	}
	if got := r.depths(p.Keys); got[1] != 0 {
		t.Errorf("text stands in the index of blocks: %v", got)
	}
	other := r.textKeys(turn[:512] + strings.Repeat("another way to go on ", 10))
	r.Remember("b", other)
	r.RecordComputed(&r.members.All[1].Member, p, 160, 100)
	if got := look(other)[1]; got != 11 {
		t.Errorf("depth %d of another branch when the engine found a little less than estimated, want all 11", got)
	}
	r.RecordComputed(&r.members.All[1].Member, p, 160, 16)
	if got := look(other)[1]; got != 8 {
		t.Errorf(
			"depth %d of another branch when the engine had lost the stem, want the 8 that were computed again", got,
		)
	}
	r.Forget("b")
	if got := look(p)[1]; got != 0 {
		t.Errorf("depth %d after a restart", got)
	}
	r.Remember("a", p)
	r.SetIndexing(Indexing{ChunkBytes: 128, CharsPerToken: 4})
	if got := look(r.textKeys(turn)); slices.Max(got) != 0 {
		t.Errorf("chunks of another size are matched: %v", got)
	}
}

// The capacity for text is the engine's tokens.
func TestTextCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := engines("a")
		rs[0].Facts.Blocks, rs[0].Facts.BlockSize = rapid.IntRange(0, 5000).Draw(t,
			"blocks"), rapid.SampledFrom([]int{0, 16, 64}).Draw(t, "size")
		r, _ := New(Options{}, func() *plain { return new(plain) })
		x := Indexing{
			ChunkBytes:    rapid.IntRange(16, 4096).Draw(t, "chunk"),
			CharsPerToken: rapid.Float64Range(0.5, 8).Draw(t, "chars"),
		}
		r.SetIndexing(x)
		r.SetMembers(rs, start)
		f, p := rs[0].Facts, Prompt{Chunk: x.perChunk()}
		if f.Blocks == 0 {
			f.Blocks = unknownBlocks
		}
		if f.BlockSize == 0 {
			f.BlockSize = UsualBlock
		}
		want := float64(f.Blocks*f.BlockSize) * x.CharsPerToken / float64(x.ChunkBytes)
		if got := float64(r.capacity(&r.members.All[0].Member, &p)); got > max(want, 1)+1e-6 || got < want-1 {
			t.Fatalf("room for %v chunks, want %v", got, want)
		}
	})
}

// TestNothingIsBelievedThatEventsDoNotSay feeds a mixed pool with events, history and changes of mode in any
// order. A member's depth never exceeds what a plain set of its source of truth says.
func TestNothingIsBelievedThatEventsDoNotSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRoster("silent", "loud")
		rs := engines("silent", "loud")
		rs[1].Facts.Events = replica.EventSource{Endpoint: "tcp://b:1"}
		r.SetMembers(rs, start)
		mode := Events
		var sent, told [2]int // blocks of the one prompt: by history, by events
		prompt := count(160)
		chain := kv.NewChain("", 16)
		keys := chain.Append(nil, chain.Root("", ""), prompt)
		t.Repeat(map[string]func(*rapid.T){
			"computed": func(t *rapid.T) {
				i, n := rapid.IntRange(0, 1).Draw(t, "member"), rapid.IntRange(1, 10).Draw(t, "blocks")
				r.RecordComputed(&r.members.All[i].Member, Prompt{Keys: keys[:n]}, 0, -1)
				if mode == Approximate || mode == Events && i == 0 {
					sent[i] = max(sent[i], n)
				}
			},
			"events": func(t *rapid.T) {
				n := rapid.IntRange(2, 10).Draw(t, "blocks")
				r.Apply("loud", stored(16, prompt[:16*n]))
				if mode == Events {
					told[1] = max(told[1], n)
				}
			},
			"mode": func(t *rapid.T) {
				to := Mode(rapid.IntRange(0, 2).Draw(t, "mode"))
				r.SetIndexing(Indexing{Mode: to})
				if to != mode {
					sent = [2]int{}
					told = [2]int{}
					mode = to
				}
			},
			"forget": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "member")
				r.Forget(r.members.All[i].R.ID)
				sent[i], told[i] = 0, 0
			},
			"": func(t *rapid.T) {
				got := r.depths(keys)
				for i := range got {
					if want := max(sent[i], told[i]); int(got[i]) != want {
						t.Fatalf("%s in mode %d: depth %d, want %d", r.members.All[i].R.ID, mode, got[i], want)
					}
				}
			},
		})
	})
}

// Common is what a walk through both prompts finds, but never less than what was known.
func TestCommon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Map(rapid.IntRange(1, 3), func(n int) kv.Key { return kv.Key(n) })
		chunk := rapid.SampledFrom([]float64{0, 20})
		// Keys name what lies before them, so that behind the first difference everything is different.
		chain := func(all []kv.Key) []kv.Key {
			for i := 1; i < len(all); i++ {
				all[i] += 10 * all[i-1]
			}
			return all
		}
		a := Prompt{Keys: chain(rapid.SliceOfN(key, 0, 8).Draw(t, "a")), Chunk: chunk.Draw(t, "chunk of a")}
		b := Prompt{Keys: chain(rapid.SliceOfN(key, 0, 8).Draw(t, "b")), Chunk: chunk.Draw(t, "chunk of b")}
		n := 0
		for n < min(len(a.Keys), len(b.Keys)) && a.Keys[n] == b.Keys[n] {
			n++
		}
		want := n * 16
		switch {
		case a.Chunk != b.Chunk:
			want = 0
		case a.Chunk > 0:
			want = n * 20
		}
		known := rapid.IntRange(0, 10).Draw(t, "known") * 16
		if got := a.Common(&b, known); got != max(known, want) {
			t.Fatalf("%d tokens in common, want %d", got, max(known, want))
		}
	})
}
