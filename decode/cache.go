package decode

import (
	"math"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// cache is the size of one replica's KV cache, and how its sequences fill the cache.
//
// A sequence of an engine that speculates holds slots ahead of its tokens: for the drafts of this step, and
// of the next (vLLM's num_lookahead_tokens). An engine may run out of blocks while its answers seem to have
// room. Then it takes a running request's blocks to go on.
type cache struct {
	facts   *replica.Facts
	drafted int // tokens a sequence and step, by the newest report that counts them; 0 unknown
}

// drafts is how many tokens the engine drafts for each sequence and step: by its own counters, else by its
// facts.
func (c cache) drafts() int {
	if c.drafted > 0 {
		return c.drafted
	}
	return c.facts.Drafts
}

// slots is the number of token slots of a generating sequence with so many tokens.
func (c cache) slots(tokens int) int {
	drafted := 2 * c.drafts()
	if longest := c.facts.MaxModelLen; longest > 0 {
		drafted = min(drafted, max(0, longest-tokens))
	}
	return tokens + drafted
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

func (c cache) blockSize() int {
	if size := c.facts.BlockSize; size > 0 {
		return size
	}
	return roster.UsualBlock
}

// largest returns the longest prompt that fits: one new token must fit as well.
func (c cache) largest() int {
	limit := math.MaxInt
	if n := c.facts.MaxModelLen; n > 0 {
		limit = n - 1
	}
	return min(limit, c.capacity()-1)
}

// capacity returns the tokens that fit, as far as is known.
func (c cache) capacity() int {
	if n := c.facts.Blocks; n > 0 {
		return n * c.blockSize()
	}
	return math.MaxInt
}
