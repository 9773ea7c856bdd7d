package kv

import (
	"math"
	"slices"
)

// copies counts the physical copies of one block in one place. vLLM keeps a second copy when two requests
// compute the same block. It announces the second copy like the first and later removes each copy
// separately. n stops at 255. With more copies than 255, the block leaves the index before its last copy is
// gone, which is the safe side.
type copies struct {
	group int16
	tier  Tier // and hasMore
	n     uint8
}

// hasMore is set in the tier of an entry if its block also has copies in other places.
const hasMore Tier = 1 << 7

// placeOf clamps what an event says into the fields of copies.
func placeOf(t Tier, group int) copies {
	return copies{tier: min(t, Other), group: int16(min(max(group, NoGroup), math.MaxInt16)), n: 1}
}

func (c copies) alone() bool { return c.tier&hasMore == 0 }

func (c copies) same(place copies) bool { return c.tier == place.tier && c.group == place.group }

// near reports whether c may be meant by place, which names no group.
func (c copies) near(place copies) bool { return c.tier == place.tier && place.group == NoGroup }

func inGroup(list []copies, group int16) bool {
	return slices.ContainsFunc(list, func(c copies) bool { return c.group == group })
}

// copiesOf returns all copies of an entry's block. The list must not be changed.
func (t *dictionary) copiesOf(e *entry) []copies {
	if !e.copies.alone() {
		return t.more[e.mixed]
	}
	return []copies{e.copies}
}

// setCopies puts a list of copies into an entry. It does not change the entry for an empty list; the caller
// removes the entry.
func (t *dictionary) setCopies(e *entry, list []copies) {
	if !e.copies.alone() {
		t.extra -= len(t.more[e.mixed])
		delete(t.more, e.mixed)
	}
	if len(list) == 0 {
		return
	}
	e.copies = list[0]
	if len(list) == 1 {
		return
	}
	e.copies.tier |= hasMore
	if t.more == nil {
		t.more = map[uint64][]copies{}
	}
	t.more[e.mixed] = list
	t.extra += len(list)
}

// addCopy counts one more copy of an entry's block.
func (t *dictionary) addCopy(e *entry, place copies) {
	if e.copies.alone() && e.copies.same(place) {
		e.copies.n += min(1, math.MaxUint8-e.copies.n)
		return
	}
	t.setCopies(e, addOne(slices.Clone(t.copiesOf(e)), place))
}

func addOne(list []copies, place copies) []copies {
	if i := slices.IndexFunc(list, place.same); i >= 0 {
		list[i].n += min(1, math.MaxUint8-list[i].n)
		return list
	}
	return append(list, place)
}

// takeOne takes one copy out of list, from place or else from a place that may be meant. nil: there is no
// copy.
func takeOne(list []copies, place copies) []copies {
	i := slices.IndexFunc(list, place.same)
	if i < 0 {
		i = slices.IndexFunc(list, func(c copies) bool { return c.near(place) })
	}
	if i < 0 {
		return nil
	}
	if list[i].n--; list[i].n == 0 {
		list = slices.Delete(list, i, i+1)
	}
	return list
}

// lower is which blocks of a stock have no copy on the GPU: a column for each tier, of the blocks whose
// nearest copy is there. It costs nothing while all blocks have a copy on the GPU. Most blocks that are
// copied to host memory do.
type lower struct {
	columns [lowerTiers]uint16 // and 1, 0 without one
	sunk    []inTier           // enter the column of a tier when settled
	risen   []inTier           // leave it, after all have entered
}

type inTier struct {
	cell cell
	tier Tier
}

// nowhere is the nearest tier of a block without a copy.
const nowhere = Other + 1

// nearest returns the nearest tier of the copies in a group.
func nearest(list []copies, group int16) Tier {
	at := nowhere
	for _, c := range list {
		if c.group == group {
			at = min(at, c.tier&^hasMore)
		}
	}
	return at
}

// gpuCopies returns how many of the copies in a group are on the GPU.
func gpuCopies(list []copies, group int16) (n int) {
	for _, c := range list {
		if c.group == group && c.tier&^hasMore == GPU {
			n += int(c.n)
		}
	}
	return n
}

// moved notes that the nearest copy of a name's block was in one tier and is in another. Only the blocks of
// whole groups say how long a prefix is.
func (s *stock) moved(at cell, was, now Tier) {
	if s == nil || s.thin || was == now {
		return
	}
	if now != GPU && now != nowhere {
		s.low.sunk = append(s.low.sunk, inTier{at, now})
	}
	if was != GPU && was != nowhere {
		s.low.risen = append(s.low.risen, inTier{at, was})
	}
}

// unsettled is how many blocks wait to change their columns.
func (s *stock) unsettled() int { return len(s.fallen) + len(s.low.sunk) + len(s.low.risen) }

// all calls do with every column of s.
func (s *stock) all(do func(column uint16)) {
	do(s.column)
	for _, column := range s.low.columns {
		if column > 0 {
			do(column - 1)
		}
	}
}
