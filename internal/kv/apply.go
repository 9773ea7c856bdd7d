package kv

// Applied counts, in blocks, what a batch did.
type Applied struct {
	Stored  int // copies placed
	Removed int // copies taken away; for a clear, blocks that had copies
	Orphans int // not placed: the block before is unknown to the holder
	Skipped int // not placed: of another block size, or only named and not known
}

// intake is a batch on its way into a holding.
type intake struct {
	Applied
	t *holding
}

func (a *intake) store(e *Event) {
	t := a.t
	how, place := nothing, copies{}
	if group, ok := t.group(e); ok {
		place = placeOf(e.Tier, group)
		how = t.useOf(e, place.group)
	}
	switch how {
	case byContent:
		a.storeBlocks(e, place)
	case byName:
		a.join(e, place)
	default:
		a.Skipped += len(e.Hashes)
	}
}

// storeBlocks places blocks by their tokens.
func (a *intake) storeBlocks(e *Event, place copies) {
	t := a.t
	t.settle()
	p := t.ix.idle.newPart(t, place)
	defer t.ix.idle.donePart(p)
	if !p.behind(e) {
		a.Orphans += len(e.Hashes)
		t.orphans.Add(uint64(len(e.Hashes)))
		return
	}
	for from := 0; from < len(e.Hashes); from += partMost {
		to := min(from+partMost, len(e.Hashes))
		p.name(e, from, to)
		stored := p.add()
		a.Stored += stored
		t.ix.guesses.confirm(t.holder, p.keys[:stored])
		a.joinAwaited(e.Hashes[from : from+stored])
		if stored < to-from {
			a.Skipped += len(e.Hashes) - from - stored
			return
		}
	}
}

// join counts a copy of blocks that are known by their names. In the engine's block pool, events may
// announce a thin group's blocks before the whole group's, within one batch.
func (a *intake) join(e *Event, place copies) {
	t := a.t
	t.settle()
	for _, hash := range e.Hashes {
		switch entry := t.dict.names.find(mix(uint64(hash))); {
		case entry != nil:
			a.Stored += t.addTo(entry.cell, hash, place)
		case e.Tier == GPU && t.groupStock(place.group).thin:
			t.await(hash, place)
			a.Skipped++
		default:
			a.Skipped++
		}
	}
}

// joinAwaited adds the waiting copies of blocks that have just become known.
func (a *intake) joinAwaited(hashes []EngineHash) {
	t := a.t
	if len(t.awaited) == 0 {
		return
	}
	for _, hash := range hashes {
		waiting := t.awaited[hash]
		delete(t.awaited, hash)
		for _, c := range waiting {
			for range c.n {
				at := t.dict.names.find(mix(uint64(hash))).cell
				joined := t.addTo(at, hash, copies{group: c.group, tier: c.tier, n: 1})
				a.Stored += joined
				a.Skipped -= joined
			}
		}
	}
}
