package kv

// Stats describes an Index at one moment.
type Stats struct {
	Blocks      int    // distinct blocks that some holder has together with all before them, counted once per 64 holders
	Memberships int    // (holder, block) pairs, those behind a hole included
	Bytes       int64  // estimate of the memory they take
	Budget      int64  // bytes beyond which memberships are dropped
	Orphans     uint64 // blocks not placed because the holder had not announced the one before
	Truncated   uint64 // memberships dropped for the budget: engines have these blocks and the index denies it
	Speculated  int    // speculations neither confirmed nor expired
	Holders     []HolderStats
}

// HolderStats is the part of Stats that belongs to one holder. Counts begin when the holder is first heard of, or heard of again after Forget.
type HolderStats struct {
	Holder     Holder
	Blocks     int // held, those behind a hole included
	Orphans    uint64
	Truncated  uint64
	Speculated int
}

// Stats returns the current counts, the holders in ascending order and only those that were heard of.
func (ix *Index) Stats() Stats {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := Stats{Blocks: ix.dir.entries, Bytes: ix.bytesLocked(), Budget: ix.budget, Orphans: ix.orphans, Truncated: ix.truncated, Speculated: len(ix.guesses.list)}
	for h, t := range ix.trees {
		if t == nil {
			continue
		}
		s.Memberships += t.live
		s.Orphans += t.orphans
		s.Truncated += t.truncated
		s.Holders = append(s.Holders, HolderStats{
			Holder: Holder(h), Blocks: t.live, Orphans: t.orphans, Truncated: t.truncated, Speculated: ix.guesses.of(Holder(h)),
		})
	}
	return s
}

func (gs *guesses) of(h Holder) (n int) {
	for i := range gs.list {
		if gs.list[i].holder == h {
			n++
		}
	}
	return n
}
