package kv

import "math/bits"

// Match sets depth[h], for every holder h below len(depth), to the number of leading blocks of keys that h
// has without a hole, in any tier. Blocks count by the holder's events or, if that gives more, by its
// speculations. The keys must be the keys of one prompt from block 0 on, as [Chain.Append] makes them. Match
// does not allocate.
//
// For a hybrid model, the prefix ends at the last block at which all of its KV cache groups can serve it
// (see groups.go). For an engine whose hashes look ahead, the last block does not count (see ahead.go).
func (ix *Index) Match(keys []Key, depth []int32) { ix.match(keys, depth, nil) }

// MatchTiers is [Index.Match], and sets below[h] to the matched blocks that h must read back, for
// every holder h below len(below). Blocks that are only guessed count as on the GPU.
func (ix *Index) MatchTiers(keys []Key, depth []int32, below []Below) {
	clear(below)
	ix.match(keys, depth, below)
}

// match is Match, and fills below, which is empty.
func (ix *Index) match(keys []Key, depth []int32, below []Below) {
	clear(depth)
	if len(keys) == 0 {
		return
	}
	defer ix.ahead.shorten(depth)
	ix.mu.RLock()
	ix.content.match(keys, ix.columns.any, &ix.columns, depth)
	ix.narrowLocked(keys, depth)
	if len(below) > 0 && len(ix.columns.sunken) > 0 {
		ix.belowLocked(keys, depth, below)
	}
	if len(ix.columns.thin) > 0 {
		ix.guesses.match(keys, depth, ix.columns.hybrid)
		ix.mu.RUnlock()
		return
	}
	ix.mu.RUnlock()
	ix.guesses.match(keys, depth, func(Holder) bool { return false })
}

// narrowLocked lowers depth to what all groups of a hybrid model have.
func (ix *Index) narrowLocked(keys []Key, depth []int32) {
	for _, f := range ix.columns.further {
		if int(f.holder) < len(depth) && depth[f.holder] > 0 {
			depth[f.holder] = min(depth[f.holder], ix.content.depthIn(keys, f.column))
		}
	}
	if len(ix.columns.thin) > 0 {
		ix.thinLocked(keys, depth)
	}
}

// belowLocked counts for every holder with blocks in lower tiers where the first depth blocks of keys are.
func (ix *Index) belowLocked(keys []Key, depth []int32, below []Below) {
	cs, deepest := &ix.columns, int32(0)
	for _, h := range cs.sunken {
		if int(h) < min(len(depth), len(below)) {
			deepest = max(deepest, depth[h])
		}
	}
	if deepest == 0 {
		return
	}
	s := ix.idle.way()
	s.walk(ix.content, keys[:deepest])
	for i := range s.list {
		x := &s.list[i]
		if x.run.held == 0 {
			continue
		}
		for _, h := range ix.content.holdsOf(x.run) {
			if int(h.column) >= len(cs.tiers) || cs.tiers[h.column] == GPU {
				continue
			}
			owner := int(cs.owner[h.column])
			if owner >= min(len(depth), len(below)) || depth[owner] <= x.at {
				continue
			}
			n := min(x.n, depth[owner]-x.at)
			*below[owner].In(cs.tiers[h.column]) += int32(bits.OnesCount64(h.word << (runSize - n)))
		}
	}
	ix.idle.doneWay(s)
}

// thinLocked lowers the depth of each holder of a hybrid model to where all of its thin groups can go on.
func (ix *Index) thinLocked(keys []Key, depth []int32) {
	columns, deepest := ix.columns.thin, int32(0)
	for _, g := range columns {
		if int(g.holder) < len(depth) {
			deepest = max(deepest, depth[g.holder])
		}
	}
	if deepest == 0 {
		return
	}
	s := ix.idle.way()
	s.walk(ix.content, keys[:deepest])
	for len(columns) > 0 {
		h, n := columns[0].holder, 1
		for n < len(columns) && columns[n].holder == h {
			n++
		}
		if int(h) < len(depth) {
			depth[h] = s.fitAll(columns[:n], depth[h])
		}
		columns = columns[n:]
	}
	ix.idle.doneWay(s)
}

// match sets the depth of the owner of each column in wanted.
func (c *content) match(keys []Key, wanted []uint64, cs *columns, depth []int32) {
	for first := 0; first < len(wanted); first += walkBanks {
		w := walk{c: c, first: first, banks: min(walkBanks, len(wanted)-first), owners: cs.owner, depth: depth}
		w.along(keys, wanted[first:])
	}
}

// depthIn returns how many leading blocks of keys are in one column.
func (c *content) depthIn(keys []Key, column uint16) int32 {
	wanted := [1]uint64{1 << (column % bankSize)}
	var depth [1]int32
	w := walk{c: c, first: int(column / bankSize), banks: 1, depth: depth[:]}
	w.along(keys, wanted[:])
	return depth[0]
}

// walkBanks is how many banks of columns one walk looks after.
const walkBanks = 16

// walk goes along a prompt, run by run, and notes where each column ends.
type walk struct {
	c      *content
	first  int               // the bank of alive[0]
	banks  int               // in use
	alive  [walkBanks]uint64 // columns that have all blocks so far
	owners []Holder          // by column; nil: all notes go to depth[0]
	depth  []int32
	seen   uint64 // what was read ahead, so that it is not left out
}

func (w *walk) along(keys []Key, wanted []uint64) {
	number := w.c.begin(keys[0])
	if number == 0 {
		return
	}
	r := w.c.runs.at(number)
	n := w.shared(r, keys)
	w.enter(r, n, wanted)
	at := n
	for at < len(keys) && w.someAlive() {
		if number = w.c.next(cellOf(number, n-1), keys[at]); number == 0 {
			break
		}
		r = w.c.runs.at(number)
		w.seen += uint64(w.c.runs.at(r.ahead).len)
		n = w.shared(r, keys[at:])
		w.pass(number, r, n, int32(at))
		at += n
	}
	for b := range w.banks {
		w.noteAll(b, w.alive[b], int32(at))
	}
}

// enter makes alive the columns that have the first n blocks of the first run.
func (w *walk) enter(r *run, n int, wanted []uint64) {
	if r.held == 0 {
		return
	}
	for _, h := range w.c.holdsOf(r) {
		b, bit := int(h.column/bankSize)-w.first, uint64(1)<<(h.column%bankSize)
		if b < 0 || b >= w.banks || wanted[b]&bit == 0 {
			continue
		}
		if have := leading(h.word); have >= n {
			w.alive[b] |= bit
		} else if have > 0 {
			w.note(h.column, int32(have))
		}
	}
}

// pass keeps alive the columns that have the first n blocks of a run that begins at block at.
func (w *walk) pass(number uint32, r *run, n int, at int32) {
	var rest [walkBanks]uint64 // alive and not known to have all of the run
	some := uint64(0)
	for b := range w.banks {
		if w.alive[b] == 0 {
			continue
		}
		full := w.c.fullOf(w.first+b, number)
		rest[b] = w.alive[b] &^ full
		w.alive[b] &= full
		some |= rest[b]
	}
	if some == 0 {
		return
	}
	if r.held > 0 {
		for _, h := range w.c.holdsOf(r) {
			b, bit := int(h.column/bankSize)-w.first, uint64(1)<<(h.column%bankSize)
			if b < 0 || b >= w.banks || rest[b]&bit == 0 {
				continue
			}
			rest[b] &^= bit
			if have := leading(h.word); have >= n {
				w.alive[b] |= bit
			} else {
				w.note(h.column, at+int32(have))
			}
		}
	}
	for b := range w.banks {
		w.noteAll(b, rest[b], at)
	}
}

func (w *walk) someAlive() bool {
	for b := range w.banks {
		if w.alive[b] != 0 {
			return true
		}
	}
	return false
}

func (w *walk) noteAll(b int, set uint64, depth int32) {
	for ; set != 0; set &= set - 1 {
		w.note(uint16((w.first+b)*bankSize+bits.TrailingZeros64(set)), depth)
	}
}

func (w *walk) note(column uint16, depth int32) {
	switch {
	case w.owners == nil:
		w.depth[0] = depth
	case int(w.owners[column]) < len(w.depth):
		w.depth[w.owners[column]] = depth
	}
}

// begin returns the run that starts with key at the start of a prompt, or 0.
func (c *content) begin(key Key) uint32 {
	if e := c.starts.find(mix(uint64(key))); e != nil && c.runs.at(uint32(e.cell)).parent == 0 {
		return uint32(e.cell)
	}
	return 0
}

// next returns the run that starts with key behind the block at parent, or 0.
func (c *content) next(parent cell, key Key) uint32 {
	r := c.runs.at(parent.run())
	if r.kids == 0 {
		return 0
	}
	if r.tail > 0 && parent.position() == runSize-1 {
		if lastChild := c.runs.at(r.lastChild); lastChild.begin == key && lastChild.parent == parent &&
			lastChild.len > 0 {
			return r.lastChild
		}
	}
	if e := c.starts.find(mix(uint64(key))); e != nil && c.runs.at(uint32(e.cell)).parent == parent {
		return uint32(e.cell)
	}
	return 0
}

// isLastChild reports whether a run hangs on parent.
func (c *content) isLastChild(number uint32, parent cell) bool {
	r := c.runs.at(number)
	return r.len > 0 && r.parent == parent
}

// fullOf returns which columns of a bank have all of a run.
func (c *content) fullOf(bank int, number uint32) uint64 {
	if word := c.fullWord(bank, number, false); word != nil {
		return *word
	}
	return 0
}

// leading returns how many blocks of a run are there from the first on.
func leading(word uint64) int { return bits.TrailingZeros64(^word) }

// shared returns how many leading keys of a run and of the rest of a prompt are the same, given that the
// first is.
func (w *walk) shared(r *run, keys []Key) int {
	n := int(r.len)
	if n <= len(keys) && keys[n-1] == r.end {
		return n
	}
	have := w.c.keysOf(r)
	for i := 0; i < len(have); i += 8 { // all cache lines at once: halving would wait for one after the other
		w.seen += uint64(have[i])
	}
	if r.held > 0 {
		w.seen += w.c.holdsOf(r)[0].word // someone will end here
	}
	return common(have[:min(n, len(keys))], keys)
}
