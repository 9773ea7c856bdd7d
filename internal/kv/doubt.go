package kv

// Doubt takes back what was assumed of h from block number from of keys on: that block, and whatever was assumed behind it, other prompts' blocks included.
// An engine drops the end of a prompt before its beginning, so that where it had to compute a block again it has nothing that hangs on it.
// It is for holders that [Index.Assume] feeds.
func (ix *Index) Doubt(h Holder, keys []Key, from int) {
	if from < 0 || from >= len(keys) {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	t := ix.foundLocked(h)
	if t == nil {
		return
	}
	if slot, found := t.slots[EngineHash(keys[from])]; found {
		t.fell(slot)
		t.packIfSparse()
	}
}
