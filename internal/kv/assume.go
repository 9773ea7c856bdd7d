package kv

import (
	"cmp"
	"math/bits"
	"slices"
)

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

// use notes that a prompt uses the blocks of keys, as far as t has them: they leave the queue. It returns
// their last cell in each run.
func (t *holding) use(keys []Key) (path []cell, tick uint32) {
	ix := t.ix
	tick = ix.tick.Add(1)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if t.first == 0 || len(keys) == 0 {
		return nil, tick
	}
	c := ix.content
	w := walk{c: c}
	for number := c.begin(keys[0]); number != 0; {
		r := c.runs.at(number)
		h := c.hold(r, uint16(t.first-1))
		if h == nil {
			break
		}
		n := w.shared(r, keys)
		t.usedAgain(n, h.born, tick)
		h.born = tick
		path = append(path, cellOf(number, n-1))
		if keys = keys[n:]; len(keys) == 0 {
			break
		}
		number = c.next(cellOf(number, n-1), keys[0])
	}
	return path, tick
}

// tell publishes what [Index.Taken] reads.
func (t *holding) tell() {
	v := cmp.Or(t.victims, &victims{})
	t.glance.taken.Store(int64(t.onGPU() + v.coming))
	t.glance.late.Store(int64(v.late))
	t.glance.gone.Store(int64(v.gone))
}

// usedAgain learns how many blocks return late: after they have come through more than half of the queue.
func (t *holding) usedAgain(n int, was, now uint32) {
	q := &t.turns
	if t.victims != nil && q.first < len(q.list) && 2*(now-was) > now-q.list[q.first].tick {
		t.victims.late += n
	}
}

// next returns the first n blocks of the queue that are not foreseen yet.
func (t *holding) next(n int) (list []stretch) {
	ix, marks := t.ix, t.victims.marks
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for i := t.turns.first; i < len(t.turns.list) && n > 0; i++ {
		u := t.turns.list[i]
		word := t.wordLocked(u)
		if word == 0 && i == t.turns.first {
			t.turns.first++
		}
		word &^= marks[u.run]
		for spare := bits.OnesCount64(word) - n; spare > 0; spare-- { // a run goes from its end
			word &= word - 1
		}
		if word != 0 && !slices.ContainsFunc(list, func(s stretch) bool { return s.run == u.run }) {
			list = append(list, stretch{u.run, word})
			n -= bits.OnesCount64(word)
		}
	}
	return list
}

// wordLocked returns the blocks of a run that have not been used since a turn.
func (t *holding) wordLocked(u turn) uint64 {
	ix := t.ix
	c := ix.content
	if t.first == 0 || int(u.run) >= c.runs.len() {
		return 0
	}
	if h := c.hold(c.runs.at(u.run), uint16(t.first-1)); h != nil && h.born == u.tick {
		return h.word
	}
	return 0
}

// tidyTurns drops turns that stand for nothing, once there may be many.
func (t *holding) tidyTurns() {
	t.ix.mu.RLock()
	defer t.ix.mu.RUnlock()
	t.turns.tidy(func(u turn) bool { return t.wordLocked(u) != 0 })
}

// onGPU returns the blocks that copies take in the engine's pool.
func (t *holding) onGPU() (n int) {
	for i := range t.stocks {
		n += t.stocks[i].onGPU
	}
	return n
}

// arrived takes in that blocks were stored on the GPU at a tick.
func (t *holding) arrived(s *stock, cells []cell, tick uint32) {
	s.onGPU += len(cells)
	if int(s.column)+1 != t.first {
		return
	}
	if v := t.victims; v != nil {
		v.coming = max(0, v.coming-len(cells))
	}
	for _, at := range slices.Backward(cells) {
		u := turn{at.run(), tick}
		if n := len(t.turns.list); n == 0 || t.turns.list[n-1] != u {
			t.turns.list = append(t.turns.list, u)
		}
	}
}

// departed takes in that a block has no copy on the GPU any more.
func (t *holding) departed(s *stock, at cell) {
	v := t.victims
	if v == nil || s == nil || int(s.column)+1 != t.first {
		return
	}
	if at.run() != v.left.run {
		t.grade()
		v.left.run = at.run()
	}
	v.left.blocks |= 1 << at.position()
}

// grade compares what went with what should go.
func (t *holding) grade() {
	v := t.victims
	if v == nil || v.left.blocks == 0 {
		return
	}
	if !t.glance.cut.Load() { // else the index itself drops blocks
		t.evicted.Add(uint64(v.left.len()))
		t.foretold.Add(uint64(v.unmark(v.left)))
		if v.gone += v.left.len(); v.gone > t.onGPU() { // what is older than the cache counts half
			v.gone /= 2
			v.late /= 2
		}
	}
	v.left = stretch{}
}

// refute takes back what was foreseen for prompts that ended before the last call.
func (t *holding) refute() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tidyTurns()
	if v := t.victims; v != nil {
		for _, s := range v.ended[0] {
			v.unmark(s)
		}
		v.ended[0], v.ended[1] = v.ended[1], v.ended[0][:0]
	}
}

// moved notes that the nearest copy of a block was in one tier and is in another.
func (t *holding) moved(s *stock, at cell, was, now Tier) {
	s.moved(at, was, now)
	if was == GPU && now != GPU {
		t.departed(s, at)
	}
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
