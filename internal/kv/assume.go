package kv

import (
	"cmp"
	"slices"
)

// Assume takes it that h has all of keys, which must start at block 0, from now on: the approximate mode for an engine without events, fed with the prompts sent to it.
// At most limit blocks of h are kept, and those of the prompts not seen for longest go first, from their ends. Forget h before its events are applied.
func (ix *Index) Assume(h Holder, keys []Key, limit int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.tick++
	t := ix.treeLocked(h)
	var parent uint32
	for _, key := range keys[:min(len(keys), max(limit, 0))] {
		parent = t.assume(parent, key, ix.tick)
	}
	if t.live > limit {
		t.fellAll(t.stalest(), limit-limit/shedPart)
	}
	t.packIfSparse()
	ix.trimLocked()
}

// assume makes the block live, or younger if it is. Its key serves as engine hash.
func (t *tree) assume(parent uint32, key Key, tick uint32) uint32 {
	if slot, found := t.slots[EngineHash(key)]; found {
		t.nodes[slot].born = tick
		return slot
	}
	slot, _ := t.store(parent, EngineHash(key), key, placeOf(GPU, NoGroup), tick)
	return slot
}

// stalest returns all nodes by age, those of one age from the deepest on.
func (t *tree) stalest() []uint32 {
	slots := t.choose(func(*node) bool { return true })
	slices.SortFunc(slots, func(a, b uint32) int {
		x, y := &t.nodes[a], &t.nodes[b]
		return cmp.Or(cmp.Compare(x.born, y.born), cmp.Compare(y.depth, x.depth))
	})
	return slots
}
