package kv

// partMost is how many blocks are placed under one lock.
const partMost = 128

// part is a stretch of a stored event on its way into the index.
type part struct {
	ix     *Index
	t      *holding
	place  copies
	parent cell // the block before it, 0 at the start of a prompt
	key    Key  // of the parent block, or the root
	tick   uint32

	hashes []EngineHash
	keys   []Key
	cells  [partMost]cell
	found  [partMost]cell // where the names stand already, 0 for new ones

	keyRoom [partMost]Key
	room    [1]EngineHash
}

// newPart returns a part of t's, which goes back to ix.parts in the end.
func (ix *idleMemory) newPart(t *holding, place copies) *part {
	p, ok := ix.parts.Get().(*part)
	if !ok {
		p = new(part)
	}
	p.ix = t.ix
	p.t = t
	p.place = place
	p.parent = 0
	p.key = 0
	return p
}

func (ix *idleMemory) donePart(p *part) {
	p.ix, p.t = nil, nil
	p.hashes = nil
	ix.parts.Put(p)
}

// behind finds what the first block of e follows; false if the holder does not have it.
func (p *part) behind(e *Event) bool {
	if !e.HasParent {
		p.parent, p.key = 0, p.t.dict.chain.Root(e.LoRA, e.Salt)
		return true
	}
	entry := p.t.dict.names.find(mix(uint64(e.Parent)))
	if entry == nil {
		return false
	}
	p.parent, p.key = entry.cell, p.ix.keyAt(entry.cell)
	return true
}

// name makes the blocks of e from and to the part, as far as their names are free or mean the same content.
func (p *part) name(e *Event, from, to int) {
	p.hashes, p.keys = e.Hashes[from:to], p.keyRoom[:0]
	size := e.BlockSize
	key := p.key
	for i := from; i < to; i++ {
		var extra []byte
		if e.Extra != nil {
			extra = e.Extra[i]
		}
		key = p.t.dict.chain.Block(key, e.Tokens[i*size:(i+1)*size], extra)
		p.keys = append(p.keys, key)
	}
	p.lookUp()
}

// lookUp fills found and cuts the part before a name that means another content.
func (p *part) lookUp() {
	ix := p.ix
	p.t.touch(p.hashes)
	old := false
	for i, hash := range p.hashes {
		p.found[i] = 0
		if e := p.t.dict.names.find(mix(uint64(hash))); e != nil {
			p.found[i], old = e.cell, true
		}
	}
	if !old {
		return
	}
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for i := range p.hashes {
		if at := p.found[i]; at != 0 && ix.content.key(at) != p.keys[i] {
			p.hashes, p.keys = p.hashes[:i], p.keys[:i]
			return
		}
	}
}

// add places the part and returns how many blocks it placed. The next part follows the last placed block.
func (p *part) add() int {
	ix := p.ix
	t, n := p.t, len(p.keys)
	if n == 0 {
		return 0
	}
	group := t.stockOf(p.place.group)
	if group == nil {
		return 0
	}
	ix.mu.Lock()
	if p.found[0] != 0 && n == 1 {
		p.cells[0] = p.found[0]
	} else {
		n = ix.content.place(p.parent, p.keys, p.cells[:n])
	}
	p.raise(group, n, func(e *entry) bool { return inGroup(t.dict.copiesOf(e), p.place.group) })
	ix.mu.Unlock()
	n = p.sign(n)
	if p.place.tier == GPU {
		t.arrived(group, p.cells[:n], p.tick)
	}
	return n
}

// raise puts into the column of s the blocks whose names are not in s yet.
func (p *part) raise(s *stock, n int, there func(*entry) bool) {
	ix := p.ix
	tick := ix.tick.Load()
	p.tick = tick
	again := p.t.dict.note(s.column)
	from := 0
	for i := range n {
		if p.found[i] == 0 || !there(p.t.dict.names.find(mix(uint64(p.hashes[i])))) {
			continue
		}
		ix.content.set(s.column, tick, p.cells[from:i], again)
		s.count += i - from
		from = i + 1
	}
	ix.content.set(s.column, tick, p.cells[from:n], again)
	s.count += n - from
}

// sign enters the names of the first n blocks and returns for how many that was possible.
func (p *part) sign(n int) int {
	t := p.t
	s := t.groupStock(p.place.group)
	for i := range n {
		e := t.dict.names.put(mix(uint64(p.hashes[i])))
		switch {
		case e.cell == 0:
			e.cell, e.copies = p.cells[i], p.place
			s.moved(e.cell, nowhere, p.place.tier)
		case e.cell != p.cells[i]: // the part names two contents alike
			p.takeBack(i, n)
			return i
		default:
			if was := nearest(t.dict.copiesOf(e), p.place.group); p.place.tier < was {
				s.moved(e.cell, was, p.place.tier)
			}
			t.dict.addCopy(e, p.place)
		}
		t.ages.note(p.hashes[i], p.place, &p.ix.clock)
		p.parent, p.key = p.cells[i], p.keys[i]
	}
	return n
}

// takeBack undoes raise for the blocks from i on.
func (p *part) takeBack(i, n int) {
	t := p.t
	for ; i < n; i++ {
		if p.found[i] != 0 {
			e := t.dict.names.find(mix(uint64(p.hashes[i])))
			if inGroup(t.dict.copiesOf(e), p.place.group) {
				continue
			}
		}
		t.dict.fallFrom(t.groupStock(p.place.group), p.cells[i])
	}
	t.settle()
}

// assume places assumed blocks and returns how many: all, unless there are too many runs or columns.
func (p *part) assume(keys []Key, tick uint32) int {
	ix := p.ix
	group := p.t.stockOf(p.place.group)
	if group == nil {
		return 0
	}
	ix.mu.Lock()
	n := ix.content.place(p.parent, keys, p.cells[:len(keys)])
	fresh := ix.content.refresh(group.column, tick, p.cells[:n])
	ix.mu.Unlock()
	group.count += fresh
	for i := range n {
		p.parent = p.cells[i]
		if e := p.t.dict.names.put(mix(uint64(keys[i]))); e.cell == 0 {
			e.cell, e.copies = p.cells[i], p.place
		}
	}
	return n
}

// assumeBehind places an assumed block behind the one before it. It reports false if the holder does not have
// the block before.
func (p *part) assumeBehind(b Named) bool {
	t := p.t
	if b.Before != 0 {
		e := t.dict.names.find(mix(uint64(b.Before)))
		if e == nil {
			return false
		}
		p.parent = e.cell
	}
	t.glance.heard.Store(true)
	tick := p.ix.tick.Add(1)
	n := p.assume([]Key{b.Key}, tick)
	t.turns.push(p.cells[:n], tick)
	return n == 1
}
