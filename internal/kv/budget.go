package kv

import (
	"cmp"
	"math/bits"
	"slices"
)

// shedPart is the divisor for shedding: a holding over the budget loses 1/shedPart of its blocks. That is
// enough for one scan of the holding to pay for many stores.
const shedPart = 8

// bytes returns the memory of the whole index, in bytes.
func (ix *Index) bytes() int64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.content.bytes() + ix.named.Load() + ix.guesses.bytes()
}

// overBudget brings the account of t up to date and reports whether the index takes more than its budget.
func (ix *Index) overBudget(t *holding) bool {
	ix.account(t)
	return ix.bytes() > ix.budget
}

// trim shrinks the largest holdings until the index is within its byte budget. The engines still have the
// dropped blocks: the index may know fewer blocks than exist, but never more.
func (ix *Index) trim() {
	for ix.bytes() > ix.budget {
		t := ix.largest()
		if t == nil {
			return
		}
		t.mu.Lock()
		before := t.dict.names.used
		ix.cut.Store(true)
		t.glance.cut.Store(true)
		ix.shed(t, max(1, before/shedPart), deepestFirst)
		t.truncated.Add(uint64(before - t.dict.names.used))
		ix.account(t)
		t.mu.Unlock()
	}
}

// largest returns the holding with most blocks, or nil if all are empty.
func (ix *Index) largest() *holding {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var largest *holding
	for _, t := range ix.holdings {
		if t != nil && t.glance.size.Load() > 0 && (largest == nil ||
			t.glance.size.Load() > largest.glance.size.Load()) {
			largest = t
		}
	}
	return largest
}

// Truncated reports whether the byte budget made the index drop blocks of h since h was last forgotten or
// cleared. If so, the depths of h may be too small.
func (ix *Index) Truncated(h Holder) bool {
	if !ix.cut.Load() {
		return false
	}
	t := ix.known(h)
	return t != nil && t.glance.cut.Load()
}

// extent is the part of one run that a holding has, as shed sees it.
type extent struct {
	number uint32
	parent uint32 // run
	depth  uint32 // of its first block
	born   uint32 // tick of the last store in this run or in a run that hangs on it
	names  int    // in it
	word   uint64 // the blocks that they name
}

// order says which of two extents goes first.
type order func(a, b *extent) int

// deepestFirst counts depths as equal within a factor of two. Among equals the oldest goes first, and a run
// goes after the runs that hang on it.
func deepestFirst(a, b *extent) int {
	return cmp.Or(-cmp.Compare(bits.Len32(a.depth), bits.Len32(b.depth)), oldestFirst(a, b))
}

func oldestFirst(a, b *extent) int {
	return cmp.Or(cmp.Compare(a.born, b.born), -cmp.Compare(a.depth, b.depth))
}

// shed drops at least quota names, whole ends of prompts, in the given order.
func (ix *Index) shed(t *holding, quota int, by order) {
	ix.settle(t)
	extents := ix.extents(t)
	slices.SortFunc(extents, func(a, b *extent) int { return by(a, b) })
	doomed := map[uint32]int{}
	for _, x := range extents {
		if quota <= 0 {
			break
		}
		doomed[x.number] = 0
		if x.names > quota { // the beginning of the run stays
			doomed[x.number] = max(0, bits.Len64(x.word)-quota)
		}
		quota -= x.names
	}
	t.dict.names.filter(func(e *entry) bool {
		first, found := doomed[e.cell.run()]
		if !found || e.cell.position() < first {
			return true
		}
		t.change(e, t.dict.copiesOf(e), nil)
		ix.settleMany(t)
		return false
	})
	ix.settle(t)
}

// extents lists the runs that t has blocks of, each as young as what hangs on it.
func (ix *Index) extents(t *holding) []*extent {
	byRun := map[uint32]*extent{}
	for cells := range t.dict.names.cells {
		ix.mu.RLock()
		for _, at := range cells {
			x := byRun[at.run()]
			if x == nil {
				x = ix.extentLocked(t, at.run())
				byRun[at.run()] = x
			}
			x.names++
			x.word |= 1 << at.position()
		}
		ix.mu.RUnlock()
	}
	list := make([]*extent, 0, len(byRun))
	for _, x := range byRun {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *extent) int { return -cmp.Compare(a.depth, b.depth) })
	for _, x := range list {
		if above := byRun[x.parent]; above != nil {
			above.born = max(above.born, x.born)
		}
	}
	return list
}

func (ix *Index) extentLocked(t *holding, number uint32) *extent {
	r := ix.content.runs.at(number)
	x := &extent{number: number, parent: r.parent.run(), depth: r.depth}
	for i := range t.stocks {
		if h := ix.content.hold(r, t.stocks[i].column); h != nil {
			x.born = max(x.born, h.born)
		}
	}
	return x
}
