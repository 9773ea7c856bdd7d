package kv

// Forget drops everything of h: its blocks, and what was speculated of it. Its [HolderStats] begin anew.
func (ix *Index) Forget(h Holder) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.guesses.forget(h)
	if t := ix.foundLocked(h); t != nil {
		t.burn()
		ix.orphans += t.orphans
		ix.truncated += t.truncated
		ix.trees[h] = nil
	}
}

// ForgetTier drops what h holds in tier t; blocks that lie in another tier as well stay. With tier GPU, what was speculated of h goes too.
func (ix *Index) ForgetTier(h Holder, t Tier) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.clearLocked(h, t)
}

func (ix *Index) clearLocked(h Holder, tier Tier) (blocks int) {
	if tier == GPU {
		ix.guesses.forget(h)
	}
	if t := ix.foundLocked(h); t != nil {
		blocks = t.clearTier(min(tier, Other))
	}
	return blocks
}
