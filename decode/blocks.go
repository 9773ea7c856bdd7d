package decode

import (
	"math"

	"github.com/tandem-router/tandem/internal/roster"
)

// A sequence of an engine that speculates holds slots ahead of its tokens: for the drafts of this step, and
// of the next (vLLM's num_lookahead_tokens). An engine may run out of blocks while its answers seem to have
// room. Then it takes a running request's blocks to go on.

// drafts is how many tokens the engine drafts for each sequence and step: by its own counters, else by its
// facts.
func (m *member) drafts() int {
	if m.drafted > 0 {
		return m.drafted
	}
	return m.R.Facts.Drafts
}

// slots is the number of token slots of a generating sequence with so many tokens.
func (m *member) slots(tokens int) int {
	drafted := 2 * m.drafts()
	if longest := m.R.Facts.MaxModelLen; longest > 0 {
		drafted = min(drafted, max(0, longest-tokens))
	}
	return tokens + drafted
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

func (m *member) blockSize() int {
	if size := m.R.Facts.BlockSize; size > 0 {
		return size
	}
	return roster.UsualBlock
}

// largest returns the longest prompt that m ever takes: one new token must fit as well.
func (m *member) largest() int {
	limit := math.MaxInt
	if n := m.R.Facts.MaxModelLen; n > 0 {
		limit = n - 1
	}
	return min(limit, m.capacity()-1)
}

// capacity returns the tokens that m holds, as far as is known.
func (m *member) capacity() int {
	if n := m.R.Facts.Blocks; n > 0 {
		return n * m.blockSize()
	}
	return math.MaxInt
}
