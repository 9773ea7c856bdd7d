package kv

import (
	"slices"
	"sync"
	"sync/atomic"
)

// holding is what one holder has, by its engine's names. mu is taken before Index.mu. No goroutine holds the
// mu of two holdings at once.
//
// Long: mu guards nearly all fields together.
type holding struct {
	ix     *Index // that it is a part of
	holder Holder
	first  int // column of its first stock by group and 1, 0 without one; guarded by Index.mu

	mu      sync.Mutex // guards the following
	dict    dictionary
	stocks  []stock
	seen    seenOf
	ages    ages
	turns   turns                   // in which blocks should go
	touched uint64                  // sum of the values that touch read, so that the compiler keeps the reads
	awaited map[EngineHash][]copies // copies of thin groups, of blocks not announced yet in this batch
	victims *victims                // nil before the first prediction

	glance glance
	counts
}

// dictionary is which engine hash names which block, in how many copies. mu of the holding guards it.
type dictionary struct {
	chain Chain // that makes the keys of the blocks
	names table // engine hash -> cell and copies
	more  map[uint64][]copies
	extra int // copies in more
	// Names, beyond the first, for one block of a stock: two engine hashes for one content; rare.
	again map[membership]int
}

// seenOf is what kinds of events the holder sends.
type seenOf struct {
	named bool  // its events name KV cache groups
	noted int64 // bytes in Index.named
}

// glance is what other goroutines read without the lock.
type glance struct {
	heard atomic.Bool
	size  atomic.Int64 // names
	cut   atomic.Bool  // blocks were dropped for the budget

	taken, late, gone atomic.Int64 // see Taken
}

// stock is the blocks of a holder in one group of its cache. It stays when it has no blocks, because the
// engine needs every group it has.
type stock struct {
	group  int16
	column uint16
	count  int    // names in it
	onGPU  int    // copies on the GPU
	thin   bool   // of a group that keeps some blocks only, or blocks of another size
	size   int    // tokens of a thin group's blocks
	need   tail   // of a thin group
	fallen []cell // leave the column when settled
	low    lower
}

type membership struct {
	column uint16
	cell   cell
}

// groupStock returns the stock of a group, or nil.
func (t *holding) groupStock(group int16) *stock {
	for i := range t.stocks {
		if s := &t.stocks[i]; s.group == group {
			return s
		}
	}
	return nil
}

// stockOf returns the stock of a group, made anew if there is none; nil when there are too many columns.
func (t *holding) stockOf(group int16) *stock {
	if t.groupStock(group) == nil {
		t.makeStock(stock{group: group})
	}
	return t.groupStock(group)
}

// makeStock gives t a stock that it does not have, with a column.
func (t *holding) makeStock(want stock) bool {
	t.ix.mu.Lock()
	defer t.ix.mu.Unlock()
	column, ok := t.ix.columns.take(t.holder)
	if !ok {
		return false
	}
	want.column = column
	t.stocks = append(t.stocks, want)
	t.ix.columns.expose(t)
	return true
}

// addTo counts one more copy of a known block and returns 1, or 0 if it cannot.
func (t *holding) addTo(at cell, hash EngineHash, place copies) int {
	p := t.ix.idle.newPart(t, place)
	defer t.ix.idle.donePart(p)
	p.hashes = append(p.room[:0], hash)
	p.keys = append(p.keyRoom[:0], t.ix.keyAt(at))
	p.found[0] = at
	return p.add()
}

// await keeps a thin group's copies of an unknown block until the end of the batch.
func (t *holding) await(hash EngineHash, place copies) {
	if t.awaited == nil {
		t.awaited = map[EngineHash][]copies{}
	}
	t.awaited[hash] = addOne(t.awaited[hash], place)
}

func (t *holding) remove(e *Event) (removed int) {
	group, _ := t.group(e)
	place := placeOf(e.Tier, group)
	t.ages.announces(place.tier, &t.ix.clock)
	for _, hash := range e.Hashes {
		if t.drop(hash, place) {
			removed++
		} else if list := takeOne(t.awaited[hash], place); list != nil {
			t.awaited[hash] = list
		}
		t.settleMany()
	}
	return removed
}

// drop removes one copy of a block, and reports whether the holder had it there. The columns follow when
// settled.
func (t *holding) drop(hash EngineHash, place copies) bool {
	way, at := t.dict.names.look(mix(uint64(hash)))
	if at < 0 {
		return false
	}
	e := &way.entries[at]
	if e.copies.alone() {
		if !e.copies.same(place) && !e.copies.near(place) {
			return false
		}
		s := t.groupStock(e.copies.group)
		if place.tier == GPU {
			s.onGPU--
		}
		if e.copies.n--; e.copies.n == 0 {
			t.moved(s, e.cell, e.copies.tier, nowhere)
			t.dict.fallFrom(s, e.cell)
			t.dict.names.removeAt(way, at)
		}
		return true
	}
	was := t.dict.copiesOf(e)
	now := takeOne(slices.Clone(was), place)
	if now == nil {
		return false
	}
	t.change(e, was, now)
	if len(now) == 0 {
		t.dict.names.removeAt(way, at)
	}
	return true
}

// change makes now the copies of a block. If now is empty, the caller must remove the entry.
func (t *holding) change(e *entry, was, now []copies) {
	for i, c := range was {
		if inGroup(was[:i], c.group) {
			continue
		}
		s := t.groupStock(c.group)
		if s != nil {
			s.onGPU += gpuCopies(now, c.group) - gpuCopies(was, c.group)
		}
		t.moved(s, e.cell, nearest(was, c.group), nearest(now, c.group))
		if !inGroup(now, c.group) {
			t.dict.fallFrom(s, e.cell)
		}
	}
	t.dict.setCopies(e, now)
}

func (t *dictionary) fallFrom(s *stock, at cell) {
	if s == nil {
		return
	}
	s.count--
	if !t.forgot(membership{s.column, at}) {
		s.fallen = append(s.fallen, at)
	}
}

// forgot reports whether a block stays in a column although one of its names has left.
func (t *dictionary) forgot(m membership) bool {
	if len(t.again) == 0 {
		return false
	}
	switch n := t.again[m]; n {
	case 0:
		return false
	case 1:
		delete(t.again, m)
	default:
		t.again[m] = n - 1
	}
	return true
}

// note counts one more name for a block that is in a column already.
func (t *dictionary) note(column uint16) func(cell) {
	return func(at cell) {
		if t.again == nil {
			t.again = map[membership]int{}
		}
		t.again[membership{column, at}]++
	}
}

// fallenMost is how many blocks of a stock wait to leave its column until they are settled.
const fallenMost = 256

// settleMany settles if enough has fallen.
func (t *holding) settleMany() {
	for i := range t.stocks {
		if t.stocks[i].unsettled() >= fallenMost {
			t.settle()
			return
		}
	}
}

// settle takes the fallen blocks out of their columns.
func (t *holding) settle() {
	ix := t.ix
	if !slices.ContainsFunc(t.stocks, func(s stock) bool { return s.unsettled() > 0 }) {
		return
	}
	ix.mu.RLock()
	for i := range t.stocks {
		t.touched += ix.content.touch(t.stocks[i].fallen)
	}
	ix.mu.RUnlock()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i := range t.stocks {
		s := &t.stocks[i]
		t.settleLower(s)
		ix.content.clear(s.column, s.fallen)
		s.fallen = s.fallen[:0]
	}
}

// settleLower brings the columns of the lower tiers up to date. Blocks enter before others leave, so that a
// column never loses a block for which a name has just entered. The caller holds Index.mu.
func (t *holding) settleLower(s *stock) {
	ix, tick := t.ix, t.ix.tick.Load()
	for _, x := range s.low.sunk {
		if column, ok := t.lowColumn(s, x.tier); ok {
			ix.content.set(column, tick, []cell{x.cell}, t.dict.note(column))
		}
	}
	for _, x := range s.low.risen {
		column := s.low.columns[x.tier-1]
		if column == 0 || t.dict.forgot(membership{column - 1, x.cell}) {
			continue
		}
		ix.content.clear(column-1, []cell{x.cell})
	}
	s.low.sunk, s.low.risen = s.low.sunk[:0], s.low.risen[:0]
}

// lowColumn returns the column of a tier, made anew if there is none; false if there are no more columns.
func (t *holding) lowColumn(s *stock, tier Tier) (uint16, bool) {
	own := &s.low.columns[tier-1]
	if *own == 0 {
		column, ok := t.ix.columns.take(t.holder)
		if !ok {
			return 0, false
		}
		*own = column + 1
		t.ix.columns.expose(t)
	}
	return *own - 1, true
}

// dropStocks gives all columns back; the stocks must be empty.
func (t *holding) dropStocks() {
	t.ix.mu.Lock()
	defer t.ix.mu.Unlock()
	for i := range t.stocks {
		t.stocks[i].all(t.ix.columns.giveBack)
	}
	t.stocks = nil
	t.ix.columns.expose(t)
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

// account publishes the size and the memory of t.
func (t *holding) account() {
	if t.dict.names.used == 0 { // nothing is left to go
		t.turns = turns{}
	}
	t.glance.size.Store(int64(t.dict.names.used))
	t.tell()
	if bytes := t.bytes(); bytes != t.seen.noted {
		t.ix.named.Add(bytes - t.seen.noted)
		t.seen.noted = bytes
	}
}

// What entries take, in bytes, with the slack of maps; TestBytesAreHonest measures them.
const (
	segmentBytes = 96 // a segment and its places in the directory
	moreBytes    = 64
	againBytes   = 48
)

func (t *holding) bytes() int64 {
	return int64(t.dict.names.room)*entryBytes + int64(len(t.dict.names.dir))*segmentBytes +
		int64(t.dict.extra)*moreBytes +
		int64(len(t.dict.again))*againBytes + int64(cap(t.turns.list))*turnBytes + int64(cap(t.ages.list))*ageBytes
}
