package core

import (
	"math/bits"

	"github.com/tandem-router/tandem/internal/kv"
)

// catalog finds the first block that is cached under a hash. It is an open-addressing table, at most half
// full. With a Go map, the churn of a small cache took a third of a replay's time. The search for a hash
// begins at its home. Removal moves later entries up, so no search has to pass a gap.
type catalog struct {
	slots []slot
	shift uint8
}

// slot is a block's id, with the upper half of the mixed hash above it. That half gives the home and lets
// most searches skip the block. 0: empty.
type slot uint64

func (s slot) block() int32 { return int32(uint32(s)) }

func slotOf(h kv.EngineHash, id int32) slot {
	// Hashes may not be random in all bits, so they are mixed.
	return slot(uint64(h)*0x9E3779B97F4A7C15&^0xFFFFFFFF | uint64(uint32(id)))
}

func newCatalog(blocks int) catalog {
	n := bits.Len(uint(2*blocks - 1))
	return catalog{make([]slot, 1<<n), uint8(64 - n)}
}

func (c *catalog) home(s slot) int { return int(s >> c.shift) }

// find returns the slot of h, or else the empty slot for h.
func (c *catalog) find(blocks []block, h kv.EngineHash) int {
	want := slotOf(h, 0)
	at := c.home(want)
	for s := c.slots[at]; s != 0; s = c.slots[at] {
		if (s^want)>>32 == 0 && blocks[s.block()].hash == h {
			break
		}
		at = (at + 1) & (len(c.slots) - 1)
	}
	return at
}

func (c *catalog) remove(at int) {
	mask := len(c.slots) - 1
	for next := (at + 1) & mask; c.slots[next] != 0; next = (next + 1) & mask {
		if s := c.slots[next]; (next-c.home(s))&mask >= (next-at)&mask { // its home is not behind at
			c.slots[at], at = s, next
		}
	}
	c.slots[at] = 0
}
