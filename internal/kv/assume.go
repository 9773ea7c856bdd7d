package kv

// Assume records that h has all of keys from now on. keys must start at block 0. This is the approximate
// mode for an engine without events: the router feeds it the prompts sent to the engine. h keeps at most
// limit blocks. The least recently used prompts lose their blocks first, the last block of a prompt before
// the others. Forget h before its events are applied.
//
// The keys serve as the engine's names: a Removed event with the keys as hashes removes the blocks.
func (ix *Index) Assume(h Holder, keys []Key, limit int) {
	t := ix.holding(h)
	t.mu.Lock()
	t.glance.heard.Store(true)
	limit = max(limit, 0)
	ix.outlive(t, limit, ix.assume(t, keys[:min(len(keys), limit)]))
	ix.account(t)
	t.mu.Unlock()
	ix.trim()
}

// assume places the new blocks and refreshes the age of the others. It returns, for each run that holds a
// part of the prompt, the last cell of the prompt in the run.
func (ix *Index) assume(t *holding, keys []Key) (path []cell) {
	tick := ix.tick.Add(1)
	p := ix.idle.newPart(t, placeOf(GPU, NoGroup))
	defer ix.idle.donePart(p)
	for len(keys) > 0 {
		n := ix.assumePart(p, keys[:min(len(keys), partMost)], tick)
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

// assumePart returns how many blocks it placed: all, unless there are too many runs or columns.
func (ix *Index) assumePart(p *part, keys []Key, tick uint32) int {
	group := ix.stockOf(p.t, p.place.group)
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

// outlive drops the least recently used blocks until t has at most limit. path is the path of the prompt
// just assumed, and the blocks of the prompt go last.
func (ix *Index) outlive(t *holding, limit int, path []cell) {
	for t.dict.names.used > limit {
		next, ok := t.turns.pop()
		switch {
		case !ok: // not from Assume
			ix.shed(t, t.dict.names.used-limit, oldestFirst)
			return
		case next.tick == t.turns.latest && path != nil:
			for _, at := range path {
				t.dropKeys(ix.keysBehind(at), limit)
			}
			path = nil
			t.turns.first--
			continue
		}
		t.dropKeys(ix.lastUsed(t, next), limit)
		if t.dict.names.used == limit {
			t.turns.first-- // the beginning of the run may still be there
		}
		ix.settleMany(t)
	}
	ix.settle(t)
	t.turns.tidy(func(u turn) bool { return len(ix.lastUsed(t, u)) > 0 })
}

// dropKeys drops assumed blocks, the last first, until there are at most limit.
func (t *holding) dropKeys(keys []Key, limit int) {
	for n := len(keys); n > 0 && t.dict.names.used > limit; n-- {
		t.drop(EngineHash(keys[n-1]), placeOf(GPU, NoGroup))
	}
}

// keysBehind returns the keys that follow a block in its run.
func (ix *Index) keysBehind(at cell) []Key {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return append([]Key(nil), ix.content.keysOf(ix.content.runs.at(at.run()))[at.position()+1:]...)
}

// lastUsed returns the keys of the run that a turn was about, unless the run was used again or has gone.
func (ix *Index) lastUsed(t *holding, u turn) []Key {
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
