package kv

// Stats describes an Index at one moment.
type Stats struct {
	Blocks      int    // distinct blocks, the few included that nobody has and that lead to others
	Memberships int    // (holder, block) pairs, those behind a hole included
	Bytes       int64  // estimate of the memory they take
	Budget      int64  // bytes beyond which memberships are dropped
	Orphans     uint64 // blocks not placed because the holder had not announced the one before
	Truncated   uint64 // memberships dropped for the budget: engines have these blocks and the index denies it
	Speculated  int    // speculations neither confirmed nor expired
	Holders     []HolderStats
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
		s.Memberships += h.Blocks
		s.Orphans += h.Orphans
		s.Truncated += h.Truncated
		s.Holders = append(s.Holders, h)
	}
	return s
}
