package kv

import "math/bits"

// content is what blocks there are, by their keys and not by whose they are: runs of up to 64 blocks, each
// the next of the one before it, and for every run which column has which of its blocks, as one word. A
// column is one set of blocks: those that a holder has in a group of its cache, or in a tier.
//
//	run 1  [k0 k1 k2 ... k63]            a system prompt
//	          |          '--> run 2 [k64 k65]             one conversation
//	          |          '--> run 3 [k64' k65' ... ]      another
//	          '--> run 4 [k2' ... ]      a prompt that leaves it after two blocks
//
// A key stands in one place only. A run ends where its last block is nobody's and nothing hangs on it; blocks
// further up that are nobody's stay as the way to those that are somebody's.
type content struct {
	runs   pages[run]
	unused uint32 // first of the free runs, chained by parent
	live   int    // runs in use
	blocks int    // keys in all runs
	keys   [keyClasses]slab[Key]
	holds  []slab[hold]    // of 1, 2, 4, ... a run
	starts table           // first key of a run -> its number
	forks  table           // cell -> runs that hang there, but for those at the last place of a run
	full   []pages[uint64] // by further bank of columns and by run: a bit for each column that has all of it
}

// cell is the place of a block: its run, and its position there; 0 is none
type cell uint32

const (
	runBits = 6
	runSize = 1 << runBits
	maxRuns = 1 << (32 - runBits)
)

func cellOf(run uint32, position int) cell { return cell(run<<runBits | uint32(position)) }
func (c cell) run() uint32                 { return uint32(c) >> runBits }
func (c cell) position() int               { return int(c & (runSize - 1)) }

// run is up to 64 blocks that follow each other. It is one cache line, with all that a walk needs that goes
// on to the next run.
type run struct {
	begin Key    // its first key
	end   Key    // its last
	full  uint64 // columns of the first bank that have all of it

	parent    cell   // the block before the first, 0 at the start of a prompt; in a free run the next free one
	depth     uint32 // blocks before the first
	keys      uint32 // slot in the slab of class
	holds     uint32 // slot in the slab of holdClass
	kids      uint32 // runs that hang on any block of this one
	tail      uint32 // those of them at the last place, runSize-1
	lastChild uint32 // a run that hung there lately: a hint
	ahead     uint32 // the run some last children further on: a hint, good for nothing but to read it in time
	held      uint16 // columns that have some block of it
	len       uint8  // blocks; 0: the run is free
	class     uint8
	grade     uint8 // class of holds
}

// hold is what one column has of a run.
type hold struct {
	word   uint64 // a bit a block, the first lowest
	born   uint32 // tick of the last store
	column uint16
}

// Room for keys comes in steps, since most runs are short and no run is longer than 64.
const (
	keyClasses    = 5
	smallestClass = 4
)

func classFor(n int) uint8 { return uint8(max(0, bits.Len(uint(n-1))-2)) }

func newContent() *content {
	c := &content{}
	for i := range c.keys {
		c.keys[i] = newSlab[Key](smallestClass << i)
	}
	return c
}

func (c *content) keysOf(r *run) []Key   { return c.keys[r.class].at(r.keys)[:r.len] }
func (c *content) holdsOf(r *run) []hold { return c.holds[r.grade].at(r.holds)[:r.held] }

// key returns the key of the block at a cell in use.
func (c *content) key(at cell) Key {
	return c.keys[c.runs.at(at.run()).class].at(c.runs.at(at.run()).keys)[at.position()]
}

// depth returns the number of blocks before the one at a cell.
func (c *content) depth(at cell) uint32 { return c.runs.at(at.run()).depth + uint32(at.position()) }

// place finds or makes the cells of keys, the first of which follows the block at parent, and returns how
// many it placed: all, unless two contents have one key or there are too many runs. The caller must set some
// column at each of them, or trim, before anything else changes.
func (c *content) place(parent cell, keys []Key, cells []cell) int {
	placed := 0
	for placed < len(keys) {
		rest := keys[placed:]
		n := 0
		if parent != 0 {
			n = c.follow(parent, rest, cells[placed:])
		}
		if n == 0 {
			n = c.branch(parent, rest, cells[placed:])
		}
		if n == 0 {
			return placed
		}
		placed += n
		parent = cells[placed-1]
	}
	return placed
}

// follow places what comes next in the run of parent, there already or at its open end.
func (c *content) follow(parent cell, keys []Key, cells []cell) (n int) {
	number := parent.run()
	r := c.runs.at(number)
	at := parent.position() + 1
	if at == runSize {
		return 0
	}
	if at == int(r.len) {
		if r.kids > 0 && c.starts.find(mix(uint64(keys[0]))) != nil {
			return 0
		}
		n = min(len(keys), runSize-at)
		c.extend(number, keys[:n])
	} else {
		have := c.keysOf(r)[at:]
		for n < min(len(have), len(keys)) && have[n] == keys[n] {
			n++
		}
	}
	for i := range n {
		cells[i] = cellOf(number, at+i)
	}
	return n
}

// extend adds blocks to the end of a run. Nobody has them yet, so that nobody has all of the run.
func (c *content) extend(number uint32, keys []Key) {
	r := c.runs.at(number)
	was, will := int(r.len), int(r.len)+len(keys)
	if class := classFor(will); will > smallestClass<<r.class {
		c.moveKeys(number, class)
	}
	r.len = uint8(will)
	copy(c.keysOf(r)[was:], keys)
	r.end = keys[len(keys)-1]
	c.blocks += len(keys)
	r.full = 0
	for bank := range c.full {
		if p := c.full[bank].peek(number); p != nil {
			*p = 0
		}
	}
}

func (c *content) moveKeys(number uint32, class uint8) {
	r := c.runs.at(number)
	slot := c.keys[class].add(number)
	copy(c.keys[class].at(slot), c.keysOf(r))
	c.dropKeys(r)
	r.keys, r.class = slot, class
}

func (c *content) dropKeys(r *run) {
	if owner, moved := c.keys[r.class].drop(r.keys); moved {
		c.runs.at(owner).keys = r.keys
	}
}

// branch places keys in a run of their own behind parent, one that is there or a new one.
func (c *content) branch(parent cell, keys []Key, cells []cell) (n int) {
	mixed := mix(uint64(keys[0]))
	if e := c.starts.find(mixed); e != nil {
		if c.runs.at(uint32(e.cell)).parent != parent {
			return 0 // a collision
		}
		cells[0] = cellOf(uint32(e.cell), 0)
		return 1
	}
	number := c.newRun()
	if number == 0 {
		return 0
	}
	n = min(len(keys), runSize)
	class := classFor(n)
	depth := uint32(0)
	if parent != 0 {
		depth = c.depth(parent) + 1
		c.hang(parent, number)
	}
	*c.runs.at(number) = run{
		begin: keys[0], parent: parent, depth: depth, keys: c.keys[class].add(number), class: class,
	}
	c.starts.put(mixed).cell = cell(number)
	c.live++
	c.extend(number, keys[:n])
	for i := range n {
		cells[i] = cellOf(number, i)
	}
	return n
}

func (c *content) newRun() uint32 {
	if number := c.unused; number != 0 {
		c.unused = uint32(c.runs.at(number).parent)
		return number
	}
	if c.runs.len() >= maxRuns-1 {
		return 0
	}
	if c.runs.len() == 0 {
		c.runs.grow() // number 0 is no run
	}
	return c.runs.grow()
}

// hang notes that a run begins behind a block.
func (c *content) hang(parent cell, number uint32) {
	r := c.runs.at(parent.run())
	r.kids++
	if parent.position() == runSize-1 {
		r.tail++
		r.lastChild = number
		c.announce(parent.run(), number)
		return
	}
	c.forks.put(mix(uint64(parent))).cell++
}

// aheadBy is how many runs before it is walked on a run is read. Each read waits for the memory, and this
// many wait at once.
const aheadBy = 8

// announce tells the run that a walk is on aheadBy steps before it comes to number, which hangs on last.
func (c *content) announce(last, number uint32) {
	for range aheadBy - 1 {
		parent := c.runs.at(last).parent
		if parent.position() != runSize-1 {
			return
		}
		last = parent.run()
	}
	c.runs.at(last).ahead = number
}

// unhang takes back what hang did.
func (c *content) unhang(parent cell) {
	r := c.runs.at(parent.run())
	r.kids--
	if parent.position() == runSize-1 {
		r.tail--
		return
	}
	mixed := mix(uint64(parent))
	if e := c.forks.find(mixed); e.cell > 1 {
		e.cell--
		return
	}
	c.forks.remove(mixed)
}

// set puts the blocks of cells into a column, and calls twice for those that were there. Cells of one run
// should stand together.
func (c *content) set(column uint16, tick uint32, cells []cell, twice func(cell)) {
	for len(cells) > 0 {
		number := cells[0].run()
		mask, n := sameRun(cells)
		cells = cells[n:]
		r := c.runs.at(number)
		h := c.hold(r, column)
		if h == nil {
			h = c.addHold(number, column)
		}
		for again := h.word & mask; again != 0; again &= again - 1 {
			twice(cellOf(number, bits.TrailingZeros64(again)))
		}
		h.word |= mask
		h.born = tick
		c.markFull(number, column, h.word == 1<<r.len-1)
	}
}

// sameRun returns the positions of the leading cells that lie in one run, and their number. A position that
// comes again ends it.
func sameRun(cells []cell) (mask uint64, n int) {
	number := cells[0].run()
	for _, at := range cells {
		bit := uint64(1) << at.position()
		if at.run() != number || mask&bit != 0 {
			break
		}
		mask |= bit
		n++
	}
	return mask, n
}

// clear takes blocks that are in a column out of it, and drops what nobody needs any more.
func (c *content) clear(column uint16, cells []cell) {
	for len(cells) > 0 {
		number := cells[0].run()
		mask, n := sameRun(cells)
		cells = cells[n:]
		r := c.runs.at(number)
		h := c.hold(r, column)
		h.word &^= mask
		if h.word == 0 {
			c.dropHold(number, column)
		}
		c.markFull(number, column, false)
		c.trim(number)
	}
}

// touch reads what clear will need, so that it need not wait for memory while readers wait for it.
func (c *content) touch(cells []cell) (seen uint64) {
	for _, at := range cells {
		if int(at.run()) < c.runs.len() {
			seen += uint64(c.runs.at(at.run()).held)
		}
	}
	for _, at := range cells {
		if int(at.run()) < c.runs.len() {
			if r := c.runs.at(at.run()); r.held > 0 {
				seen += c.holdsOf(r)[0].word
			}
		}
	}
	return seen
}

// hold returns what column has of r, or nil.
func (c *content) hold(r *run, column uint16) *hold {
	if r.held == 0 {
		return nil
	}
	hs := c.holdsOf(r)
	for i := range hs {
		if hs[i].column == column {
			return &hs[i]
		}
	}
	return nil
}

func (c *content) addHold(number uint32, column uint16) *hold {
	r := c.runs.at(number)
	if r.held == 0 || int(r.held) == 1<<r.grade {
		c.moveHolds(number, uint8(bits.Len16(r.held)))
	}
	r.held++
	hs := c.holdsOf(r)
	hs[r.held-1] = hold{column: column}
	return &hs[r.held-1]
}

// moveHolds gives a run room for 1<<grade holds.
func (c *content) moveHolds(number uint32, grade uint8) {
	for len(c.holds) <= int(grade) {
		c.holds = append(c.holds, newSlab[hold](1<<len(c.holds)))
	}
	r := c.runs.at(number)
	slot := c.holds[grade].add(number)
	if r.held > 0 {
		copy(c.holds[grade].at(slot), c.holdsOf(r))
		c.freeHolds(r)
	}
	r.holds, r.grade = slot, grade
}

func (c *content) freeHolds(r *run) {
	if owner, moved := c.holds[r.grade].drop(r.holds); moved {
		c.runs.at(owner).holds = r.holds
	}
}

func (c *content) dropHold(number uint32, column uint16) {
	r := c.runs.at(number)
	hs := c.holdsOf(r)
	for i := range hs {
		if hs[i].column == column {
			hs[i] = hs[len(hs)-1]
			break
		}
	}
	if r.held == 1 {
		c.freeHolds(r)
		r.held = 0
		return
	}
	r.held--
	if r.grade > 1 && int(r.held) <= 1<<(r.grade-2) {
		c.moveHolds(number, r.grade-1)
	}
}

// markFull notes whether a column has all of a run.
func (c *content) markFull(number uint32, column uint16, all bool) {
	word, bit := c.fullWord(int(column/bankSize), number, all), uint64(1)<<(column%bankSize)
	switch {
	case all:
		*word |= bit
	case word != nil:
		*word &^= bit
	}
}

// fullWord returns where the bits of a bank are for a run, nil where there are none and none are wanted.
func (c *content) fullWord(bank int, number uint32, wanted bool) *uint64 {
	if bank == 0 {
		return &c.runs.at(number).full
	}
	bank--
	if wanted {
		for len(c.full) <= bank {
			c.full = append(c.full, pages[uint64]{})
		}
		return c.full[bank].reach(number)
	}
	if bank < len(c.full) {
		return c.full[bank].peek(number)
	}
	return nil
}

// bankSize is how many columns fit into one word of full.
const bankSize = 64

// trim ends a run after its last block that somebody has or something hangs on. A run without any goes, and
// then the one that it hung on may end sooner too.
func (c *content) trim(number uint32) {
	for {
		r := c.runs.at(number)
		end := c.needed(number)
		if end == int(r.len) {
			return
		}
		c.blocks -= int(r.len) - end
		if end == 0 {
			parent := r.parent
			c.freeRun(number)
			if parent == 0 {
				return
			}
			c.unhang(parent)
			number = parent.run()
			continue
		}
		r.len = uint8(end)
		r.end = c.keysOf(r)[end-1]
		if class := classFor(end); class+1 < r.class {
			c.moveKeys(number, class+1)
		}
		c.refill(number)
		return
	}
}

// needed returns how long a run must be.
func (c *content) needed(number uint32) int {
	r := c.runs.at(number)
	var all uint64
	if r.held > 0 {
		for _, h := range c.holdsOf(r) {
			all |= h.word
		}
	}
	end := bits.Len64(all)
	if r.kids == 0 {
		return end
	}
	if r.tail > 0 {
		return runSize
	}
	for at := int(r.len); at > end; at-- {
		if c.forks.find(mix(uint64(cellOf(number, at-1)))) != nil {
			return at
		}
	}
	return end
}

// refill finds anew who has all of a run that became shorter.
func (c *content) refill(number uint32) {
	r := c.runs.at(number)
	if r.held == 0 {
		return
	}
	for _, h := range c.holdsOf(r) {
		c.markFull(number, h.column, h.word == 1<<r.len-1)
	}
}

func (c *content) freeRun(number uint32) {
	r := c.runs.at(number)
	c.starts.remove(mix(uint64(r.begin)))
	c.dropKeys(r)
	*r = run{parent: cell(c.unused)}
	c.unused = number
	c.live--
	if c.live == 0 {
		*c = *newContent()
	}
}

// bytes returns the memory that all takes.
func (c *content) bytes() int64 {
	n := c.runs.bytes(runBytes) + int64(c.starts.room+c.forks.room)*entryBytes
	for i := range c.keys {
		n += int64(c.keys[i].slots()) * int64(c.keys[i].width*keyBytes+ownerBytes)
	}
	for i := range c.holds {
		n += int64(c.holds[i].slots()) * int64(c.holds[i].width*holdBytes+ownerBytes)
	}
	for i := range c.full {
		n += c.full[i].bytes(keyBytes)
	}
	return n
}

const (
	runBytes   = 64
	keyBytes   = 8
	holdBytes  = 16
	ownerBytes = 4
	entryBytes = 16
)
