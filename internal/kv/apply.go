package kv

// Applied counts, in blocks, what a batch did.
type Applied struct {
	Stored  int // copies placed
	Removed int // copies taken away; for a clear, blocks that had copies
	Orphans int // not placed: the block before is unknown to the holder
	Skipped int // not placed: masked, of another block size, or of a group that cannot serve a prefix
}

// Apply takes over what the engine behind h published. It holds the lock once for the whole batch and keeps nothing of b.
//
// A block whose parent h has not announced is not placed: it never becomes the start of a prompt, nor is it remembered in case the parent comes later.
// Removals of blocks that were not placed do nothing.
func (ix *Index) Apply(h Holder, b *Batch) Applied {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.tick++
	var a Applied
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case Stored:
			ix.storeLocked(h, e, &a)
			ix.trimLocked()
		case Removed:
			a.Removed += ix.removeLocked(h, e)
		case Cleared:
			a.Removed += ix.clearLocked(h, e.Tier)
		}
	}
	if t := ix.foundLocked(h); t != nil {
		t.packIfSparse()
	}
	return a
}

func (ix *Index) storeLocked(h Holder, e *Event, a *Applied) {
	if !ix.plain(e) {
		a.Skipped += len(e.Hashes)
		return
	}
	t := ix.treeLocked(h)
	parent, key, ok := ix.parent(t, e)
	if !ok {
		a.Orphans += len(e.Hashes)
		t.orphans += uint64(len(e.Hashes))
		return
	}
	place := placeOf(e.Tier, e.Group)
	for i, hash := range e.Hashes {
		key = ix.block(key, e, i)
		if parent, ok = t.store(parent, hash, key, place, ix.tick); !ok {
			a.Skipped += len(e.Hashes) - i
			return
		}
		a.Stored++
		ix.guesses.confirm(h, key)
	}
}

// plain reports whether the event's blocks can be placed: each hash has its own tokens, of our block size, and its group serves prefixes from block 0 on.
func (ix *Index) plain(e *Event) bool {
	return len(e.Hashes) > 0 &&
		e.BlockSize > 0 && e.BlockSize == ix.chain.size &&
		len(e.Tokens) == len(e.Hashes)*e.BlockSize &&
		(e.Extra == nil || len(e.Extra) == len(e.Hashes)) &&
		servesPrefix(e.SpecKind)
}

// servesPrefix reports whether a group of this kind keeps every block of a prefix. Sliding windows and Mamba states keep some only, so that what they hold says nothing of the blocks before.
func servesPrefix(kind string) bool {
	switch kind {
	case "", "unknown", "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

// parent returns what the first block of e follows: its slot, 0 at the start of a prompt, and its key.
func (ix *Index) parent(t *tree, e *Event) (slot uint32, key Key, ok bool) {
	if !e.HasParent {
		return 0, ix.chain.Root(e.LoRA, e.Salt), true
	}
	slot, ok = t.slots[e.Parent]
	return slot, t.nodes[slot].key, ok
}

func (ix *Index) block(parent Key, e *Event, i int) Key {
	var extra []byte
	if e.Extra != nil {
		extra = e.Extra[i]
	}
	return ix.chain.Block(parent, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize], extra)
}

func (ix *Index) removeLocked(h Holder, e *Event) (removed int) {
	t := ix.foundLocked(h)
	if t == nil {
		return 0
	}
	place := placeOf(e.Tier, e.Group)
	for _, hash := range e.Hashes {
		if t.remove(hash, place) {
			removed++
		}
	}
	return removed
}
