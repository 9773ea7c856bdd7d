package kv

// assume places the new blocks and refreshes the age of the others. It returns, for each run that holds a
// part of the prompt, the last cell of the prompt in the run.
func (t *holding) assume(keys []Key) (path []cell) {
	tick := t.ix.tick.Add(1)
	p := t.ix.idle.newPart(t, placeOf(GPU, NoGroup))
	defer t.ix.idle.donePart(p)
	for len(keys) > 0 {
		n := p.assume(keys[:min(len(keys), partMost)], tick)
		for _, at := range p.cells[:n] {
			if n := len(path); n > 0 && path[n-1].run() == at.run() {
				path[n-1] = at
				continue
			}
			path = append(path, at)
		}
		if n < min(len(keys), partMost) {
			break
		}
		keys = keys[n:]
	}
	t.turns.push(path, tick)
	return path
}

// outlive drops the least recently used blocks until t has at most limit. path is the path of the prompt
// just assumed, and the blocks of the prompt go last.
func (t *holding) outlive(limit int, path []cell) {
	for t.dict.names.used > limit {
		next, ok := t.turns.pop()
		switch {
		case !ok: // not from Assume
			t.shed(t.dict.names.used-limit, oldestFirst)
			return
		case next.tick == t.turns.latest && path != nil:
			for _, at := range path {
				t.dropKeys(t.keysBehind(at), limit)
			}
			path = nil
			t.turns.first--
			continue
		}
		t.dropKeys(t.lastUsed(next), limit)
		if t.dict.names.used == limit {
			t.turns.first-- // the beginning of the run may still be there
		}
		t.settleMany()
	}
	t.settle()
	t.turns.tidy(func(u turn) bool { return len(t.lastUsed(u)) > 0 })
}

// dropKeys drops assumed blocks, the last first, until there are at most limit.
func (t *holding) dropKeys(keys []Key, limit int) {
	for n := len(keys); n > 0 && t.dict.names.used > limit; n-- {
		t.drop(EngineHash(keys[n-1]), placeOf(GPU, NoGroup))
	}
}

// keysBehind returns the keys that follow a block in its run.
func (t *holding) keysBehind(at cell) []Key {
	ix := t.ix
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return append([]Key(nil), ix.content.keysOf(ix.content.runs.at(at.run()))[at.position()+1:]...)
}

// lastUsed returns the keys of the run that a turn was about, unless the run was used again or has gone.
func (t *holding) lastUsed(u turn) []Key {
	ix := t.ix
	group := t.groupStock(NoGroup)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if group == nil || int(u.run) >= ix.content.runs.len() {
		return nil
	}
	r := ix.content.runs.at(u.run)
	h := ix.content.hold(r, group.column)
	if h == nil || h.born != u.tick {
		return nil
	}
	return append([]Key(nil), ix.content.keysOf(r)...)
}

// behindCell returns the keys of the block at a cell and of all behind it, of which t may have any.
func (t *holding) behindCell(at cell) (keys []Key) {
	ix := t.ix
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for {
		r := ix.content.runs.at(at.run())
		keys = append(keys, ix.content.keysOf(r)[at.position():]...)
		switch {
		case r.kids == 0:
			return keys
		case r.kids > r.tail || r.tail > 1 || !ix.content.isLastChild(r.lastChild, cellOf(at.run(), runSize-1)):
			return t.underLocked(at, keys)
		}
		at = cellOf(r.lastChild, 0)
	}
}

// underLocked adds the keys of the blocks of t that lie behind top in other runs. These runs hang, directly
// or through other runs, on the run of top at its block or behind it.
func (t *holding) underLocked(top cell, keys []Key) []Key {
	ix := t.ix
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

// turn says that a run was used at a tick. It stands for nothing once the run is used again.
type turn struct{ run, tick uint32 }

// turns are the assumed runs, in the order of their eviction.
type turns struct {
	list  []turn
	first int // index in list of the next turn
	kept  int // turns that the last tidying left

	latest uint32 // tick of the last push
}

// push notes the use of the runs on a path, the last of which goes first.
func (ts *turns) push(path []cell, tick uint32) {
	ts.latest = tick
	for i := range path {
		ts.list = append(ts.list, turn{path[len(path)-1-i].run(), tick})
	}
}

func (ts *turns) pop() (turn, bool) {
	if ts.first == len(ts.list) {
		return turn{}, false
	}
	ts.first++
	return ts.list[ts.first-1], true
}

// tidyLeast is the number of turns below which tidying is not worth it.
const tidyLeast = 1024

// tidy drops turns without a run, once such turns may outnumber the turns with a run.
func (ts *turns) tidy(stands func(turn) bool) {
	if len(ts.list) < 2*ts.kept+tidyLeast {
		return
	}
	left := make([]turn, 0, ts.kept)
	for _, u := range ts.list[ts.first:] {
		if stands(u) {
			left = append(left, u)
		}
	}
	ts.list = left
	ts.first = 0
	ts.kept = len(left)
}
