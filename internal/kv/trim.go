package kv

import "math/bits"

// trim ends a run after its last block that a column has or a run hangs on. A run without such a block goes.
// The run that it hung on may then end sooner too.
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

// refill marks anew the columns that have all of a run that became shorter.
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
