package kv

import (
	"slices"
	"sync"
	"sync/atomic"
)

// holding is what one holder has, by its engine's names. mu is taken before Index.mu. No goroutine holds the
// mu of two holdings at once.
type holding struct {
	holder Holder
	first  int // column of its first stock by group and 1, 0 without one; guarded by Index.mu

	mu      sync.Mutex // guards the following
	dict    dictionary
	stocks  []stock
	seen    seenOf
	turns   turns                   // in which assumed blocks should go
	touched uint64                  // sum of the values that touch read, so that the compiler keeps the reads
	awaited map[EngineHash][]copies // copies of thin groups, of blocks not announced yet in this batch

	glance glance
	counts
}

// dictionary is which engine hash names which block, in how many copies. mu of the holding guards it.
type dictionary struct {
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
}

// stock is the blocks of a holder in one group of its cache. It stays when it has no blocks, because the
// engine needs every group it has.
type stock struct {
	group  int16
	column uint16
	count  int    // names in it
	thin   bool   // of a group that keeps some blocks only, or blocks of another size
	size   int    // tokens of a thin group's blocks
	need   tail   // of a thin group
	fallen []cell // leave the column when settled
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
		if e.copies.n--; e.copies.n == 0 {
			t.fall(e.cell, e.copies)
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
		if !inGroup(now, c.group) && !inGroup(was[:i], c.group) {
			t.dict.fallFrom(t.groupStock(c.group), e.cell)
		}
	}
	t.dict.setCopies(e, now)
}

// fall takes a block out of all stocks that its only copies were in.
func (t *holding) fall(at cell, c copies) {
	t.dict.fallFrom(t.groupStock(c.group), at)
}

func (t *dictionary) fallFrom(s *stock, at cell) {
	if s == nil {
		return
	}
	s.count--
	if len(t.again) > 0 {
		m := membership{s.column, at}
		if n := t.again[m]; n > 1 {
			t.again[m] = n - 1
			return
		} else if n == 1 {
			delete(t.again, m)
			return
		}
	}
	s.fallen = append(s.fallen, at)
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
func (ix *Index) settleMany(t *holding) {
	for i := range t.stocks {
		if len(t.stocks[i].fallen) >= fallenMost {
			ix.settle(t)
			return
		}
	}
}

// settle takes the fallen blocks out of their columns.
func (ix *Index) settle(t *holding) {
	if !slices.ContainsFunc(t.stocks, func(s stock) bool { return len(s.fallen) > 0 }) {
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
		ix.content.clear(s.column, s.fallen)
		s.fallen = s.fallen[:0]
	}
}

// dropStocks gives all columns back; the stocks must be empty.
func (ix *Index) dropStocks(t *holding) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i := range t.stocks {
		ix.columns.giveBack(t.stocks[i].column)
	}
	t.stocks = nil
	ix.columns.expose(t)
}

// account publishes the size and the memory of t.
func (ix *Index) account(t *holding) {
	t.glance.size.Store(int64(t.dict.names.used))
	if bytes := t.bytes(); bytes != t.seen.noted {
		ix.named.Add(bytes - t.seen.noted)
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
		int64(len(t.dict.again))*againBytes + int64(cap(t.turns.list))*turnBytes
}
