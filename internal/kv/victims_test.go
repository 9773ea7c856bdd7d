package kv

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// lru is vLLM's block pool as a naive list: free blocks in the order of eviction.
type lru struct {
	room   int
	cached map[Key]bool
	free   []Key
}

// begin takes the blocks of a prompt, and returns how many are new and which blocks were evicted for them.
func (l *lru) begin(keys []Key) (fresh int, gone []Key) {
	matched := 0
	for matched < len(keys) && l.cached[keys[matched]] {
		matched++
	}
	l.free = slices.DeleteFunc(l.free, func(k Key) bool { return slices.Contains(keys[:matched], k) })
	fresh = len(keys) - matched
	short := max(0, len(l.cached)+fresh-l.room)
	gone, l.free = l.free[:short:short], l.free[short:]
	for _, k := range gone {
		delete(l.cached, k)
	}
	for _, k := range keys {
		l.cached[k] = true
	}
	return fresh, gone
}

func (l *lru) end(keys []Key) {
	for _, k := range slices.Backward(keys) {
		l.free = append(l.free, k)
	}
}

// blocksOf returns the blocks that f names, in any order.
func (ix *Index) blocksOf(f *Foreseen) (keys []Key) {
	for _, s := range f.list {
		for at, k := range ix.content.keysOf(ix.content.runs.at(s.run)) {
			if s.blocks>>at&1 == 1 {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// announce applies what the engine says: some blocks have gone, and a prompt is there.
func announce(ix *Index, gone []Key, tokens []Token, keys []Key) {
	b := Batch{}
	for _, k := range gone {
		b.Events = append(b.Events, removed(EngineHash(k)))
	}
	e := Event{Kind: Stored, Tokens: tokens, BlockSize: 4, Group: 0, SpecKind: "full_attention"}
	for _, k := range keys {
		e.Hashes = append(e.Hashes, EngineHash(k))
	}
	have := ix.Heard(0, keys) // vLLM announces new blocks only
	if e.Hashes, e.Tokens = e.Hashes[have:], e.Tokens[4*have:]; have > 0 {
		e.HasParent, e.Parent = true, EngineHash(keys[have-1])
	}
	if len(e.Hashes) > 0 {
		b.Events = append(b.Events, e)
	}
	ix.Apply(0, &b)
}

// With prompts that part from each other at the ends of runs, the queue is exact: what is foreseen is what a
// naive list evicts.
func TestVictimsAreThoseOfANaiveList(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ix := NewIndex(Options{Chain: testChain})
		engine := &lru{room: 400 + rnd.IntN(400), cached: map[Key]bool{}}
		announce(ix, nil, prompt(1, 1<<20), promptKeys(1, 1<<20)) // the holder is known
		engine.begin(promptKeys(1, 1<<20))
		engine.end(promptKeys(1, 1<<20))
		for i := range 150 {
			document := 64 * (1 + rnd.IntN(2))
			tokens := prompt(document, Token(1+rnd.IntN(5))<<12)
			tokens = append(tokens, prompt(1+rnd.IntN(100), Token(100+i)<<12)...)
			keys := testChain.Append(nil, testChain.Root("", ""), tokens)
			fresh, want := engine.begin(keys)
			f := ix.Foresee(0, keys, fresh, engine.room)
			got := ix.blocksOf(f)
			slices.Sort(got)
			sorted := slices.Sorted(slices.Values(want))
			if !slices.Equal(got, sorted) {
				t.Fatalf("seed %d, prompt %d: foreseen %d blocks, evicted %d others", seed, i, len(got), len(sorted))
			}
			announce(ix, want, tokens, keys)
			engine.end(keys)
			ix.Ended(0, keys, f)
			ix.Expire(time.Unix(int64(i), 0))
		}
		v := ix.Stats().Victims
		if v.Both != v.Foreseen || v.Both != v.Evicted || v.Both < 500 {
			t.Errorf("seed %d: %+v", seed, v)
		}
	}
}

// The chance that an evicted block is needed soon is learned from blocks that return when most of the queue
// has gone before them. Without evictions it says nothing of the price: nothing is taken beyond the room.
func TestTakenAndReturns(t *testing.T) {
	ix := NewIndex(Options{Chain: testChain})
	taken := make([]int32, 2)
	if r := ix.Taken(taken); r != 0 || taken[0] != 0 {
		t.Errorf("an empty index: %v, %v", r, taken)
	}
	const blocks, prompts = 64, 10
	play := func(seed Token) {
		tokens := prompt(blocks, seed<<12)
		keys := testChain.Append(nil, testChain.Root("", ""), tokens)
		have := ix.Heard(0, keys)
		f := ix.Foresee(0, keys, blocks-have, blocks*prompts)
		var gone []Key
		if f != nil {
			gone = ix.blocksOf(f)
		}
		announce(ix, gone, tokens, keys)
		ix.Ended(0, keys, f)
	}
	announce(ix, nil, prompt(1, 1<<20), promptKeys(1, 1<<20))
	for i := range prompts - 1 {
		play(Token(i + 1))
	}
	if r := ix.Taken(taken); r != 0 || taken[0] != blocks*(prompts-1)+1 || taken[1] != 0 {
		t.Errorf("before evictions: %v, %v", r, taken)
	}
	for i := range prompts / 2 { // each returns late, and another one comes
		play(Token(2*i + 1))
		play(Token(100 + i))
	}
	if r := ix.Taken(taken); r < 0.4 || r > 0.7 {
		t.Errorf("half of the queue returns: %v", r)
	}
	for i := range 5 * prompts {
		play(Token(200 + i))
	}
	if r := ix.Taken(taken); r > 0.2 || taken[0] != blocks*prompts {
		t.Errorf("nothing returns: %v, %v", r, taken)
	}
}
