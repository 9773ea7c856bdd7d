package kv

// Applied counts, in blocks, what a batch did.
type Applied struct {
	Stored  int // copies placed
	Removed int // copies taken away; for a clear, blocks that had copies
	Orphans int // not placed: the block before is unknown to the holder
	Skipped int // not placed: masked, of another block size, or of a group that cannot serve a prefix
}

// Apply takes over what the engine behind h published. It keeps nothing of b. Readers see its events one by one, long ones in parts.
//
// A block whose parent h does not have is not placed: it never becomes the start of a prompt, nor is it remembered in case the parent comes later.
// Removals of blocks that were not placed do nothing.
func (ix *Index) Apply(h Holder, b *Batch) Applied {
	t := ix.holding(h)
	t.mu.Lock()
	t.heard.Store(true)
	ix.tick.Add(1)
	var a Applied
	warm := 0
	for i := range b.Events {
		e := &b.Events[i]
		if i >= warm {
			warm = t.warm(b.Events, i)
		}
		switch e.Kind {
		case Stored:
			ix.store(t, e, &a)
			if ix.overBudget(t) {
				t.mu.Unlock()
				ix.trim()
				t.mu.Lock()
			}
		case Removed:
			a.Removed += ix.remove(t, e)
		case Cleared:
			a.Removed += ix.clearTier(t, e.Tier)
		}
	}
	ix.settle(t)
	ix.account(t)
	t.mu.Unlock()
	ix.trim()
	return a
}

// warm touches the names in the removals that stand together from event i on, many of which are far away in memory, and returns how far it came.
func (t *holding) warm(events []Event, i int) int {
	for n := 0; i < len(events) && events[i].Kind == Removed && n < partMost; i++ {
		t.touch(events[i].Hashes[:min(partMost, len(events[i].Hashes))])
		n += len(events[i].Hashes)
	}
	return i
}

func (t *holding) touch(hashes []EngineHash) {
	sum := t.touched
	for _, hash := range hashes {
		sum += t.names.touch(mix(uint64(hash)))
	}
	t.touched = sum
}

func (ix *Index) store(t *holding, e *Event, a *Applied) {
	place := placeOf(e.Tier, e.Group)
	switch {
	case e.BlockSize == 0 && len(e.Tokens) == 0:
		ix.join(t, e, place, a)
		return
	case !ix.plain(e):
		a.Skipped += len(e.Hashes)
		if ix.masked(e) {
			ix.disown(t, place.group)
		}
		return
	case t.isBarren(place.group):
		a.Skipped += len(e.Hashes)
		return
	}
	ix.settle(t)
	p := ix.newPart(t, place)
	defer ix.donePart(p)
	if !ix.behind(p, e) {
		if t.cut.Load() {
			ix.stocksFor(t, place) // the budget may be why it is an orphan, and its group counts all the same
		}
		a.Orphans += len(e.Hashes)
		t.orphans.Add(uint64(len(e.Hashes)))
		return
	}
	for from := 0; from < len(e.Hashes); from += partMost {
		to := min(from+partMost, len(e.Hashes))
		ix.name(p, e, from, to)
		stored := ix.add(p)
		a.Stored += stored
		ix.guesses.confirm(t.holder, p.keys[:stored])
		if stored < to-from {
			a.Skipped += len(e.Hashes) - from - stored
			return
		}
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

// masked reports whether the event shows that its group keeps only some blocks of a prefix. Engines that do not tell a group's kind leave the hashes of the others out.
func (ix *Index) masked(e *Event) bool {
	if e.Group == NoGroup {
		return false
	}
	unsaid := e.SpecKind == "" || e.SpecKind == "unknown"
	return !servesPrefix(e.SpecKind) || unsaid && e.BlockSize == ix.chain.size && len(e.Tokens) > len(e.Hashes)*e.BlockSize
}

// join counts a copy of blocks that are known by other events: a tier outside the engine's block pool that tells no tokens (OffloadingConnector, events.py).
func (ix *Index) join(t *holding, e *Event, place copies, a *Applied) {
	ix.settle(t)
	p := ix.newPart(t, place)
	defer ix.donePart(p)
	for _, hash := range e.Hashes {
		entry := t.names.find(mix(uint64(hash)))
		if entry == nil {
			a.Skipped++
			continue
		}
		place.group = entry.copies.group // the tier keeps whole blocks, whatever it calls the group
		p.place = place
		p.hashes = append(p.room[:0], hash)
		p.keys = append(p.keyRoom[:0], ix.keyAt(entry.cell))
		p.found[0] = entry.cell
		a.Stored += ix.add(p)
	}
}

func (ix *Index) remove(t *holding, e *Event) (removed int) {
	place := placeOf(e.Tier, e.Group)
	if t.isBarren(place.group) {
		return 0
	}
	for _, hash := range e.Hashes {
		if t.drop(hash, place) {
			removed++
		}
		ix.settleMany(t)
	}
	return removed
}

func (ix *Index) keyAt(at cell) Key {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.content.key(at)
}
