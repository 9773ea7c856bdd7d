package kv

import "math/bits"

// hold is what one column has of a run.
type hold struct {
	word   uint64 // a bit a block, the first lowest
	born   uint32 // tick of the last store
	column uint16
}

func (c *content) holdsOf(r *run) []hold { return c.holds[r.grade].at(r.holds)[:r.held] }

// set puts the blocks of cells into a column, and calls twice for each block that was there already. Cells
// of one run should stand together.
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

// refresh makes sure that a column has the blocks of cells, and returns how many it did not have.
func (c *content) refresh(column uint16, tick uint32, cells []cell) int {
	fresh := len(cells)
	c.set(column, tick, cells, func(cell) { fresh-- })
	return fresh
}

// sameRun returns the positions of the leading cells that lie in one run, and their number. A repeated
// position ends the row.
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

// clear takes blocks out of a column that has them, and drops the blocks that no column has any more.
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

// vacate takes a column out of every run in which cells has a block.
func (c *content) vacate(column uint16, cells []cell) {
	for _, at := range cells {
		number := at.run()
		if int(number) >= c.runs.len() || c.hold(c.runs.at(number), column) == nil {
			continue // the column has left the run with another block
		}
		c.dropHold(number, column)
		c.markFull(number, column, false)
		c.trim(number)
	}
}

// touch reads the memory that clear will need, so that clear does not wait for memory while readers wait for
// clear.
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

// fullWord returns the address of the word of full for a bank and a run, nil if there is none and none is
// wanted.
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
