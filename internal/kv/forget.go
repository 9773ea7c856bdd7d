package kv

import "slices"

// Forget drops everything of h: its blocks, and what was speculated of it. Its [HolderStats] begin anew. It
// takes time for many blocks, in which readers go on.
func (ix *Index) Forget(h Holder) {
	ix.guesses.forget(h)
	ix.ahead.remove(h)
	t := ix.known(h)
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ix.settle(t)
	t.glance.cut.Store(false)
	ix.burn(t)
	ix.dropStocks(t)
	ix.retired.orphans.Add(t.orphans.Swap(0))
	ix.retired.truncated.Add(t.truncated.Swap(0))
	t.seen.named = false
	t.glance.heard.Store(false)
	ix.account(t)
}

// burn takes all names of t and all its columns away.
func (ix *Index) burn(t *holding) {
	for cells := range t.dict.names.cells {
		ix.mu.RLock()
		t.touched += ix.content.touch(cells)
		ix.mu.RUnlock()
		ix.mu.Lock()
		for i := range t.stocks {
			ix.content.vacate(t.stocks[i].column, cells)
		}
		ix.mu.Unlock()
	}
	t.dict.names = table{}
	t.dict.more = nil
	t.dict.extra = 0
	t.dict.again = nil
	t.seen.tiered = false
	t.turns = turns{}
	t.awaited = nil
	for i := range t.stocks {
		t.stocks[i].count = 0
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.retireLocked(t)
}

// vacate takes a column from every run that one of cells is in.
func (c *content) vacate(column uint16, cells []cell) {
	for _, at := range cells {
		number := at.run()
		if int(number) >= c.runs.len() || c.hold(c.runs.at(number), column) == nil {
			continue // went with another block of it
		}
		c.dropHold(number, column)
		c.markFull(number, column, false)
		c.trim(number)
	}
}

// clear takes over that the engine has cleared a tier, and returns how many blocks had copies there. What
// lies in the tiers below the engine's own goes with that: they are emptied too where the connector was
// reset, and say nothing of it (vLLM's OffloadingConnector).
func (ix *Index) clear(t *holding, tier Tier) (blocks int) {
	if tier != GPU {
		return ix.clearTier(t, tier)
	}
	ix.guesses.forget(t.holder)
	ix.settle(t)
	blocks = t.dict.names.used
	t.glance.cut.Store(false)
	ix.burn(t)
	return blocks
}

// clearTier drops all copies in one tier and returns how many blocks had some.
func (ix *Index) clearTier(t *holding, tier Tier) (blocks int) {
	tier = min(tier, Other)
	if tier == GPU {
		ix.guesses.forget(t.holder)
	}
	ix.settle(t)
	ix.sift(t, func(c copies) bool { return c.tier != tier }, &blocks)
	return blocks
}

// sift keeps the copies for which keep is true, and adds the number of blocks that lost some to changed.
func (ix *Index) sift(t *holding, keep func(copies) bool, changed *int) {
	t.dict.names.filter(func(e *entry) bool {
		was := t.dict.copiesOf(e)
		now := slices.DeleteFunc(slices.Clone(was), func(c copies) bool { return !keep(c) })
		if len(now) == len(was) {
			return true
		}
		*changed++
		t.change(e, was, now)
		ix.settleMany(t)
		return len(now) > 0
	})
	ix.settle(t)
}
