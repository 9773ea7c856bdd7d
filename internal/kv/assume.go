package kv

// Assume takes it that h has all of keys, which must start at block 0, from now on: the approximate mode for an engine without events, fed with the prompts sent to it.
// At most limit blocks of h are kept, and those of the prompts not seen for longest go first, from their ends. Forget h before its events are applied.
//
// The keys serve as the engine's names: a Removed event with the keys as hashes takes blocks back.
func (ix *Index) Assume(h Holder, keys []Key, limit int) {
	t := ix.holding(h)
	t.mu.Lock()
	t.heard.Store(true)
	ix.tick.Add(1)
	keys = keys[:min(len(keys), max(limit, 0))]
	p := ix.newPart(t, placeOf(GPU, NoGroup))
	defer ix.donePart(p)
	ok := true
	for len(keys) > 0 && ok {
		n := min(len(keys), partMost)
		ok = ix.assume(p, keys[:n])
		keys = keys[n:]
	}
	if t.names.used > max(limit, 0) {
		ix.shed(t, t.names.used-max(limit, 0)+limit/shedPart, oldestFirst)
	}
	ix.account(t)
	t.mu.Unlock()
	ix.trim()
}

// assume places the blocks that are new, and makes the others younger.
func (ix *Index) assume(p *part, keys []Key) bool {
	group, _ := ix.stocksFor(p.t, p.place)
	if group == nil {
		return false
	}
	ix.mu.Lock()
	n := ix.content.place(p.parent, keys, p.cells[:len(keys)])
	fresh := ix.content.refresh(group.column, ix.tick.Load(), p.cells[:n])
	ix.mu.Unlock()
	group.count += fresh
	for i := range n {
		p.parent = p.cells[i]
		if e := p.t.names.put(mix(uint64(keys[i]))); e.cell == 0 {
			e.cell, e.copies = p.cells[i], p.place
		}
	}
	return n == len(keys)
}

// refresh sees to it that a column has the blocks of cells, and returns how many it did not have.
func (c *content) refresh(column uint16, tick uint32, cells []cell) int {
	fresh := len(cells)
	c.set(column, tick, cells, func(cell) { fresh-- })
	return fresh
}
