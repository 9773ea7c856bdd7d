package kv

// Applied counts, in blocks, what a batch did.
type Applied struct {
	Stored  int // copies placed
	Removed int // copies taken away; for a clear, blocks that had copies
	Orphans int // not placed: the block before is unknown to the holder
	Skipped int // not placed: of another block size, or only named and not known
}

// Apply applies the events that the engine behind h published. Apply keeps nothing of b. Readers see the
// events one by one, and long events in parts.
//
// A block is not placed if h does not have its parent. Such a block never becomes the start of a prompt. The
// index does not remember the block for the case that its parent comes later. Removing a block that was not
// placed does nothing.
func (ix *Index) Apply(h Holder, b *Batch) Applied {
	t := ix.holding(h)
	t.mu.Lock()
	t.glance.heard.Store(true)
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
			if e.Ahead > 0 {
				ix.ahead.add(h)
			}
			ix.store(t, e, &a)
			if ix.overBudget(t) {
				t.mu.Unlock()
				ix.trim()
				t.mu.Lock()
			}
		case Removed:
			a.Removed += ix.remove(t, e)
		case Cleared:
			a.Removed += ix.clear(t, e.Tier)
		}
	}
	t.awaited = nil
	ix.settle(t)
	ix.account(t)
	t.mu.Unlock()
	ix.trim()
	return a
}

// warm touches the names in the consecutive removals from event i on. Many of the names are far apart in
// memory. It returns the index of the first event that it did not touch.
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
		sum += t.dict.names.touch(mix(uint64(hash)))
	}
	t.touched = sum
}

func (ix *Index) store(t *holding, e *Event, a *Applied) {
	how, place := nothing, copies{}
	if group, ok := ix.group(t, e); ok {
		place = placeOf(e.Tier, group)
		how = ix.useOf(t, e, place.group)
	}
	switch how {
	case byContent:
		ix.storeBlocks(t, e, place, a)
	case byName:
		ix.join(t, e, place, a)
	default:
		a.Skipped += len(e.Hashes)
	}
}

// storeBlocks places blocks by their tokens.
func (ix *Index) storeBlocks(t *holding, e *Event, place copies, a *Applied) {
	ix.settle(t)
	p := ix.idle.newPart(t, place)
	defer ix.idle.donePart(p)
	if !ix.behind(p, e) {
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
		ix.arrived(t, e.Hashes[from:from+stored], a)
		if stored < to-from {
			a.Skipped += len(e.Hashes) - from - stored
			return
		}
	}
}

// join counts a copy of blocks that are known by their names. In the engine's block pool, events may
// announce a thin group's blocks before the whole group's, within one batch.
func (ix *Index) join(t *holding, e *Event, place copies, a *Applied) {
	ix.settle(t)
	for _, hash := range e.Hashes {
		switch entry := t.dict.names.find(mix(uint64(hash))); {
		case entry != nil:
			a.Stored += ix.addTo(t, entry.cell, hash, place)
		case e.Tier == GPU && t.groupStock(place.group).thin:
			t.await(hash, place)
			a.Skipped++
		default:
			a.Skipped++
		}
	}
}

// addTo counts one more copy of a known block and returns 1, or 0 if it cannot.
func (ix *Index) addTo(t *holding, at cell, hash EngineHash, place copies) int {
	p := ix.idle.newPart(t, place)
	defer ix.idle.donePart(p)
	p.hashes = append(p.room[:0], hash)
	p.keys = append(p.keyRoom[:0], ix.keyAt(at))
	p.found[0] = at
	return ix.add(p)
}

// await keeps a thin group's copies of an unknown block until the end of the batch.
func (t *holding) await(hash EngineHash, place copies) {
	if t.awaited == nil {
		t.awaited = map[EngineHash][]copies{}
	}
	t.awaited[hash] = addOne(t.awaited[hash], place)
}

// arrived adds the waiting copies of blocks that have just become known.
func (ix *Index) arrived(t *holding, hashes []EngineHash, a *Applied) {
	if len(t.awaited) == 0 {
		return
	}
	for _, hash := range hashes {
		waiting := t.awaited[hash]
		delete(t.awaited, hash)
		for _, c := range waiting {
			for range c.n {
				at := t.dict.names.find(mix(uint64(hash))).cell
				joined := ix.addTo(t, at, hash, copies{group: c.group, tier: c.tier, n: 1})
				a.Stored += joined
				a.Skipped -= joined
			}
		}
	}
}

func (ix *Index) remove(t *holding, e *Event) (removed int) {
	group, _ := ix.group(t, e)
	place := placeOf(e.Tier, group)
	for _, hash := range e.Hashes {
		if t.drop(hash, place) {
			removed++
		} else if list := takeOne(t.awaited[hash], place); list != nil {
			t.awaited[hash] = list
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
