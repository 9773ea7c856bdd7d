package kv

import (
	"cmp"
	"math/bits"
	"slices"
)

// What entries take, in bytes, with the slack of growing slices and maps; TestBytesAreHonest measures them.
const (
	slotBytes      = 96 // a node and its place by engine hash
	entryBytes     = 32 // a key in the directory
	elsewhereBytes = 64
)

// shedPart is which part of a tree goes when there is too much: enough that one scan of the tree pays for many stores.
const shedPart = 8

func (ix *Index) bytesLocked() int64 {
	d := &ix.dir
	return int64(d.slots)*slotBytes + int64(d.elsewheres)*elsewhereBytes + int64(d.entries)*entryBytes + ix.guesses.bytes()
}

// trimLocked makes the largest trees smaller until all is within the byte budget. What it drops, the engines still have: the index knows less than there is, never more.
func (ix *Index) trimLocked() {
	for ix.bytesLocked() > ix.budget {
		t := ix.largestLocked()
		if t == nil {
			return
		}
		t.shed(max(1, t.used()/shedPart))
	}
}

// largestLocked returns the tree that takes most, or nil if all are empty.
func (ix *Index) largestLocked() *tree {
	var largest *tree
	for _, t := range ix.trees {
		if t != nil && len(t.nodes) > 1 && (largest == nil || len(t.nodes) > len(largest.nodes)) {
			largest = t
		}
	}
	return largest
}

// shed frees at least quota nodes, the deepest first. Depths count as equal within a factor of two; among equals the oldest goes first, with all that hangs under it.
func (t *tree) shed(quota int) {
	octave := t.octave(quota)
	target := t.used() - quota
	before := t.live
	t.fellAll(t.below(octave), 0)
	t.fellAll(t.oldest(octave), target)
	t.truncated += uint64(before - t.live)
	t.pack()
}

// fellAll fells the given nodes in turn until no more than target are left in the tree.
func (t *tree) fellAll(slots []uint32, target int) {
	for _, slot := range slots {
		if t.used() <= target {
			return
		}
		if t.nodes[slot].used { // not felled with one above it
			t.fell(slot)
		}
	}
}

// octaveOf groups depths: 0, 1, 2-3, 4-7 and so on.
func octaveOf(depth uint32) int { return bits.Len32(depth) }

// octave returns the one from which, coming up from the deepest, quota nodes are reached.
func (t *tree) octave(quota int) int {
	var count [33]int
	for i := range t.nodes {
		if t.nodes[i].used {
			count[octaveOf(t.nodes[i].depth)]++
		}
	}
	for o := len(count) - 1; o > 0; o-- {
		if quota -= count[o]; quota <= 0 {
			return o
		}
	}
	return 0
}

// below returns the nodes that begin the next deeper octave.
func (t *tree) below(octave int) []uint32 {
	return t.choose(func(n *node) bool { return n.depth == 1<<octave })
}

// oldest returns the nodes of an octave by age.
func (t *tree) oldest(octave int) []uint32 {
	slots := t.choose(func(n *node) bool { return octaveOf(n.depth) == octave })
	slices.SortFunc(slots, func(a, b uint32) int { return cmp.Compare(t.nodes[a].born, t.nodes[b].born) })
	return slots
}

func (t *tree) choose(which func(*node) bool) (slots []uint32) {
	for slot := range uint32(len(t.nodes)) {
		if n := &t.nodes[slot]; n.used && which(n) {
			slots = append(slots, slot)
		}
	}
	return slots
}
