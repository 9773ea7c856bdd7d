package kv

import (
	"math/bits"
	"reflect"
)

// content has all known blocks by their keys, whatever their holders. The blocks are kept in runs. A run is
// up to 64 blocks, each of which follows the one before. For every run and column, one word says which
// blocks of the run are in the column. A column is one set of blocks: the blocks that a holder has in one
// group of its cache, or in one tier.
//
//	run 1  [k0 k1 k2 ... k63]            a system prompt
//	          |          '--> run 2 [k64 k65]             one conversation
//	          |          '--> run 3 [k64' k65' ... ]      another
//	          '--> run 4 [k2' ... ]      a prompt that leaves it after two blocks
//
// A key stands in one place only. A run loses its last block when no column has the block and no run hangs
// on it. A block before the last stays without a holder if later blocks have one: it is the way to the later
// blocks.
type content struct {
	runs   pages[run]
	unused uint32 // first of the free runs, chained by parent
	live   int    // runs in use
	blocks int    // keys in all runs
	keys   [keyClasses]slab[Key]
	holds  []slab[hold]    // of 1, 2, 4, ... a run
	starts table           // first key of a run -> its number
	forks  table           // cell -> runs that hang there, but for those at the last place of a run
	full   []pages[uint64] // by further bank of columns and by run: a bit for each column that has the whole run
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

// run is up to 64 blocks that follow each other. It is one cache line, and has everything that a walk needs
// to go on to the next run.
//
// Long: it is one cache line, which structs within it would pad.
type run struct {
	begin Key    // its first key
	end   Key    // its last
	full  uint64 // columns of the first bank that have the whole run

	parent    cell   // the block before the first, 0 at the start of a prompt; in a free run the next free one
	depth     uint32 // blocks before the first
	keys      uint32 // slot in the slab of class
	holds     uint32 // slot in the slab of holdClass
	kids      uint32 // runs that hang on any block of this one
	tail      uint32 // the kids that hang on the last place, runSize-1
	lastChild uint32 // a run that hung there lately: a hint
	ahead     uint32 // the run some last children further on: a hint, good for nothing but to read it in time
	held      uint16 // columns that have some block of the run
	len       uint8  // blocks; 0: the run is free
	class     uint8
	grade     uint8 // class of holds
}

// Room for keys comes in steps, since most runs are short and no run is longer than 64.
const (
	keyClasses    = 5
	smallestClass = 4
)

func newContent() *content {
	c := &content{}
	for i := range c.keys {
		c.keys[i] = newSlab[Key](smallestClass << i)
	}
	return c
}

func classFor(n int) uint8 { return uint8(max(0, bits.Len(uint(n-1))-2)) }

func (c *content) keysOf(r *run) []Key { return c.keys[r.class].at(r.keys)[:r.len] }

// key returns the key of the block at a cell in use.
func (c *content) key(at cell) Key {
	return c.keys[c.runs.at(at.run()).class].at(c.runs.at(at.run()).keys)[at.position()]
}

// depth returns the number of blocks before the one at a cell.
func (c *content) depth(at cell) uint32 { return c.runs.at(at.run()).depth + uint32(at.position()) }

// place finds or makes the cells of keys and returns how many keys it placed. The first key follows the
// block at parent. place stops early if two contents have one key, or if there are too many runs. The caller
// must then set some column at each cell, or trim, before anything else changes.
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

// follow places the next keys in the run of parent, where they are already or at its open end.
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

// extend adds blocks to the end of a run. No column has the new blocks yet, so no column has all of the run.
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

// branch places keys in a run that hangs on parent: an existing run, or else a new one.
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

// aheadBy is how many runs before its turn a run is read. Each read waits for memory, and this many reads
// wait at once.
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

// bytes returns the memory of content, in bytes.
func (c *content) bytes() int64 {
	n := c.runs.bytes(runBytes) + int64(c.starts.room+c.forks.room)*entryBytes
	for i := range c.keys {
		n += int64(c.keys[i].slots()) * (int64(c.keys[i].width)*keyBytes + ownerBytes)
	}
	for i := range c.holds {
		n += int64(c.holds[i].slots()) * (int64(c.holds[i].width)*holdBytes + ownerBytes)
	}
	for i := range c.full {
		n += c.full[i].bytes(keyBytes)
	}
	return n
}

// Sizes in bytes, of one in a list.
var (
	runBytes   = sizeOf[run]()
	keyBytes   = sizeOf[Key]()
	holdBytes  = sizeOf[hold]()
	ownerBytes = sizeOf[uint32]()
	entryBytes = sizeOf[entry]()
	turnBytes  = sizeOf[turn]()
	ageBytes   = sizeOf[age]()
)

func sizeOf[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }
