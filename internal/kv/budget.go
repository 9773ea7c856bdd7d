package kv

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
	t.account()
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
		t.shed(max(1, before/shedPart), deepestFirst)
		t.truncated.Add(uint64(before - t.dict.names.used))
		t.tidyTurns()
		t.account()
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

// Stats describes an Index at one moment.
type Stats struct {
	Blocks      int    // distinct blocks, the few included that nobody has and that lead to others
	Memberships int    // (holder, block) pairs, those behind a hole included
	Bytes       int64  // estimate of the memory they take
	Budget      int64  // bytes beyond which memberships are dropped
	Orphans     uint64 // blocks not placed because the holder had not announced the one before
	Truncated   uint64 // memberships dropped for the budget: engines have these blocks and the index denies it
	Victims     Victims
	Speculated  int // speculations neither confirmed nor expired
	Holders     []HolderStats
}

// Victims compares the blocks that holders should evict, by [Index.Foresee], with the blocks that they have
// evicted since their first prediction.
type Victims struct{ Foreseen, Evicted, Both uint64 }

func (v *Victims) add(c *counts) {
	v.Foreseen += c.foreseen.Load()
	v.Evicted += c.evicted.Load()
	v.Both += c.foretold.Load()
}

// HolderStats is the part of Stats that belongs to one holder. Counts begin when the holder is first heard
// of, or heard of again after Forget.
type HolderStats struct {
	Holder     Holder
	Blocks     int // held, those behind a hole included
	Orphans    uint64
	Truncated  uint64
	Speculated int
}

// Stats returns the current counts. The holders are in ascending order, and only holders with events or
// assumed blocks are in it.
func (ix *Index) Stats() Stats {
	speculated, all := ix.guesses.counts()
	s := Stats{
		Bytes: ix.bytes(), Budget: ix.budget, Orphans: ix.retired.orphans.Load(),
		Truncated: ix.retired.truncated.Load(), Speculated: all,
	}
	s.Victims.add(&ix.retired)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s.Blocks = ix.content.blocks
	for _, t := range ix.holdings {
		if t == nil || !t.glance.heard.Load() {
			continue
		}
		h := HolderStats{
			Holder: t.holder, Blocks: int(t.glance.size.Load()), Orphans: t.orphans.Load(),
			Truncated:  t.truncated.Load(),
			Speculated: speculated[t.holder],
		}
		s.Victims.add(&t.counts)
		s.Memberships += h.Blocks
		s.Orphans += h.Orphans
		s.Truncated += h.Truncated
		s.Holders = append(s.Holders, h)
	}
	return s
}

// Taken sets taken[h], for every holder h below len(taken), to the blocks in h's GPU memory that have content
// or are promised to a prompt (see [Index.Foresee]). It returns the chance that an evicted block is asked for
// within as long as it has lain unused. The index sees no such request, since the block is gone. So the
// chance is that of the time before: of the blocks that came through half of the queue, the share that was
// used before it was evicted.
func (ix *Index) Taken(taken []int32) (returns float64) {
	clear(taken)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var late, gone int64
	for h, t := range ix.holdings {
		if t == nil {
			continue
		}
		if h < len(taken) {
			taken[h] = int32(t.glance.taken.Load())
		}
		late += t.glance.late.Load()
		gone += t.glance.gone.Load()
	}
	return float64(late) / float64(max(late+gone, 1))
}
