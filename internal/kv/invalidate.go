package kv

// Invalidate takes back what was assumed of h from block number from of keys on. It drops this block and
// every block that was assumed behind it, including other prompts' blocks. An engine drops the end of a
// prompt before its beginning. If the engine had to compute a block again, it has no block behind that
// block. Invalidate is for holders that [Index.Assume] feeds.
func (ix *Index) Invalidate(h Holder, keys []Key, from int) {
	t := ix.known(h)
	if t == nil || from < 0 || from >= len(keys) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.dict.names.find(mix(uint64(keys[from])))
	if e == nil {
		return
	}
	for _, key := range ix.behindCell(t, e.cell) {
		t.drop(EngineHash(key), placeOf(GPU, NoGroup))
		ix.settleMany(t)
	}
	ix.settle(t)
	ix.account(t)
}

// behindCell returns the keys of the block at a cell and of all behind it, of which t may have any.
func (ix *Index) behindCell(t *holding, at cell) (keys []Key) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for {
		r := ix.content.runs.at(at.run())
		keys = append(keys, ix.content.keysOf(r)[at.position():]...)
		switch {
		case r.kids == 0:
			return keys
		case r.kids > r.tail || r.tail > 1 || !ix.content.isLastChild(r.lastChild, cellOf(at.run(), runSize-1)):
			return ix.underLocked(t, at, keys)
		}
		at = cellOf(r.lastChild, 0)
	}
}

// underLocked adds the keys of the blocks of t that lie behind top in other runs. These runs hang, directly
// or through other runs, on the run of top at its block or behind it.
func (ix *Index) underLocked(t *holding, top cell, keys []Key) []Key {
	under := map[uint32]bool{}
	var hangs func(number uint32) bool
	hangs = func(number uint32) bool {
		known, ok := under[number]
		if ok {
			return known
		}
		parent := ix.content.runs.at(number).parent
		under[number] = parent != 0 &&
			(parent.run() == top.run() && parent >= top || parent.run() != top.run() && hangs(parent.run()))
		return under[number]
	}
	for cells := range t.dict.names.cells {
		for _, at := range cells {
			if at.run() != top.run() && hangs(at.run()) {
				keys = append(keys, ix.content.key(at))
			}
		}
	}
	return keys
}
