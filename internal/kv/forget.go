package kv

import (
	"cmp"
	"math/bits"
	"slices"
)

// burn removes all names of t and all its columns.
func (t *holding) burn() {
	t.settle()
	ix := t.ix
	for cells := range t.dict.names.cells {
		ix.mu.RLock()
		t.touched += ix.content.touch(cells)
		ix.mu.RUnlock()
		ix.mu.Lock()
		for i := range t.stocks {
			t.stocks[i].all(func(column uint16) { ix.content.vacate(column, cells) })
		}
		ix.mu.Unlock()
	}
	t.dict.names = table{}
	t.dict.more = nil
	t.dict.extra = 0
	t.dict.again = nil
	t.turns = turns{}
	t.victims = nil
	t.ages.keep(&ix.clock, func(*age) bool { return false })
	t.awaited = nil
	for i := range t.stocks {
		t.stocks[i].count, t.stocks[i].onGPU = 0, 0
	}
}

// clear applies that the engine has cleared a tier, and returns how many blocks had copies there. Clearing
// the engine's own tier clears the tiers below too: a reset of the connector empties these tiers without an
// event (vLLM's OffloadingConnector).
func (t *holding) clear(tier Tier) (blocks int) {
	if tier != GPU {
		return t.sift(func(c copies) bool { return c.tier != min(tier, Other) })
	}
	t.ix.guesses.forget(t.holder)
	blocks = t.dict.names.used
	t.glance.cut.Store(false)
	t.burn()
	return blocks
}

// sift keeps the copies for which keep is true, and returns the number of blocks that lost some.
func (t *holding) sift(keep func(copies) bool) (changed int) {
	t.settle()
	t.dict.names.filter(func(e *entry) bool {
		was := t.dict.copiesOf(e)
		now := slices.DeleteFunc(slices.Clone(was), func(c copies) bool { return !keep(c) })
		if len(now) == len(was) {
			return true
		}
		changed++
		t.change(e, was, now)
		t.settleMany()
		return len(now) > 0
	})
	t.settle()
	return changed
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
func (t *holding) shed(quota int, by order) {
	t.settle()
	extents := t.extents()
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
		t.settleMany()
		return false
	})
	t.settle()
	t.ages.keep(&t.ix.clock, func(x *age) bool { return t.dict.names.find(mix(uint64(x.hash))) != nil })
}

// outdate drops the copies whose time has ended.
func (t *holding) outdate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		x, ok := t.ages.next(&t.ix.clock)
		if !ok {
			break
		}
		t.drop(x.hash, x.place)
		t.settleMany()
	}
	t.settle()
	t.account()
}

// extents lists the runs that t has blocks of, each as young as what hangs on it.
func (t *holding) extents() []*extent {
	byRun := map[uint32]*extent{}
	for cells := range t.dict.names.cells {
		t.ix.mu.RLock()
		for _, at := range cells {
			x := byRun[at.run()]
			if x == nil {
				x = t.extentLocked(at.run())
				byRun[at.run()] = x
			}
			x.names++
			x.word |= 1 << at.position()
		}
		t.ix.mu.RUnlock()
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

func (t *holding) extentLocked(number uint32) *extent {
	ix := t.ix
	r := ix.content.runs.at(number)
	x := &extent{number: number, parent: r.parent.run(), depth: r.depth}
	for i := range t.stocks {
		if h := ix.content.hold(r, t.stocks[i].column); h != nil {
			x.born = max(x.born, h.born)
		}
	}
	return x
}
