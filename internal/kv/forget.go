package kv

import "slices"

// Forget drops the blocks and the speculations of h. The [HolderStats] of h start again at zero. With many
// blocks Forget takes some time, and readers continue meanwhile.
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

// burn removes all names of t and all its columns.
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
	t.turns = turns{}
	t.awaited = nil
	for i := range t.stocks {
		t.stocks[i].count = 0
	}
}

// clear applies that the engine has cleared a tier, and returns how many blocks had copies there. Clearing
// the engine's own tier clears the tiers below too: a reset of the connector empties these tiers without an
// event (vLLM's OffloadingConnector).
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
