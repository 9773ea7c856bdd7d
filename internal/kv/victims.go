package kv

import "math/bits"

// An engine says which blocks it has evicted, never which blocks it will evict. vLLM takes new blocks from
// the front of a queue of free blocks: blocks without a user, in the order in which they lost their last user
// (v1/core/block_pool.py). A request frees its blocks at once, the last one first. A cached block that a
// request matches leaves the queue until that request ends.
//
// An Index follows that queue by runs: a run counts as used when any of its blocks was used last. So the
// queue needs no memory for a block, and about 8 to 16 bytes for a run (see turns).

// Foreseen is the blocks that a holder is expected to evict for one prompt.
type Foreseen struct {
	list  []stretch
	fresh int // blocks that the prompt stores
}

// stretch is some blocks of a run, a bit a block.
type stretch struct {
	run    uint32
	blocks uint64
}

func (s stretch) len() int { return bits.OnesCount64(s.blocks) }

// victims are the predictions for one holder. mu of the holding guards them.
type victims struct {
	open   int               // new blocks of the prompts that have not ended
	coming int               // of open, blocks not stored yet
	marks  map[uint32]uint64 // by run: blocks that should go
	marked int               // blocks in marks
	left   stretch           // blocks that went one after the other, not graded yet
	late   int               // blocks used again after more than half of the time after which blocks go
	gone   int               // blocks that went meanwhile
	ended  [2][]stretch      // predictions of ended prompts, older ones first
}

// unmark takes blocks out of marks, and returns how many there were.
func (v *victims) unmark(s stretch) int {
	s.blocks &= v.marks[s.run]
	if s.blocks == 0 {
		return 0
	}
	if v.marks[s.run] &^= s.blocks; v.marks[s.run] == 0 {
		delete(v.marks, s.run)
	}
	v.marked -= s.len()
	return s.len()
}
