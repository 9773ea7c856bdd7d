package roster

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// indexes are the block index and the text index of a pool. They are read without the lock of the members.
// Safe for concurrent use.
type indexes struct {
	bytes  int64                    // memory for both; 0: no limit
	blocks atomic.Pointer[kv.Index] // of all block sizes; nil where nothing is indexed
	text   atomic.Pointer[text]     // nil where no text is matched
}

// blockSize returns the tokens of m's blocks, 0 unknown: by its events, else by its facts or the
// configuration.
func (m *Member) blockSize() int { return cmp.Or(m.blocks.told, m.R.Facts.BlockSize) }

// fits reports whether m's blocks can have the keys of p.
func (m *Member) fits(p *Prompt) bool {
	size := m.blockSize()
	return p.text() || p.Block == 0 || size == 0 || size == p.Block
}

// assumedWrongly reports whether nothing holds of what was assumed about m's blocks, by facts that are now
// known: m publishes events, or its blocks have another size.
func (m *Member) assumedWrongly(now *replica.Facts) bool {
	was := &m.R.Facts
	if was.Events == (replica.EventSource{}) && now.Events != was.Events {
		return true
	}
	return m.blocks.told == 0 && !replica.Agree(was.BlockSize, now.BlockSize)
}

// UsualBlock is the tokens of a block in vLLM by default, for a member that has not reported its own.
const UsualBlock = 16

// MeanMatched returns how many tokens of a prompt n members have on average, in whole blocks of size. Only
// members for which held returns known count. It returns 0 if there are none.
func MeanMatched(n int, held func(i int) (tokens int, known bool), size int) int {
	sum, all := 0, 0
	for i := range n {
		if tokens, known := held(i); known {
			sum += tokens
			all++
		}
	}
	if sum == 0 {
		return 0
	}
	return sum / all / size * size
}

func (x *indexes) newIndex() *kv.Index {
	return kv.NewIndex(kv.Options{ByteBudget: x.bytes - x.bytes/textShare})
}

func (x *indexes) newText(of Indexing) *text {
	return &text{kv.NewIndex(kv.Options{ByteBudget: x.bytes / textShare}), of.ChunkBytes, of.perChunk()}
}

// Unit returns the tokens of a block of p.
func (p *Prompt) Unit() int { return cmp.Or(p.Block, UsualBlock) }

// of returns the index that p's keys belong to, nil if there is none.
func (x *indexes) of(p *Prompt) *kv.Index {
	if p.text() {
		if tx := x.text.Load(); tx != nil {
			return tx.Index
		}
		return nil
	}
	return x.blocks.Load()
}

// parts returns how many whole parts of p the given tokens are.
func (p *Prompt) parts(tokens int) int {
	if p.text() {
		return int(float64(tokens) / p.Chunk)
	}
	return tokens / p.Unit()
}

// tokens returns how many tokens the given whole parts of p are.
func (p *Prompt) tokens(parts int) int {
	if p.text() {
		return int(float64(parts) * p.Chunk)
	}
	return parts * p.Unit()
}

// refutes reports whether the engine's count shows that less was there than believed. Of text we only know
// roughly how many tokens it has.
func (x *indexes) refutes(p *Prompt, believed, cached int) bool {
	if p.text() {
		return cached < believed/2
	}
	return cached < believed
}

// Common returns how many leading tokens p and another prompt share by their keys: at least known, which are
// shared anyway.
func (p *Prompt) Common(with *Prompt, known int) int {
	if p.text() != with.text() {
		return known
	}
	from := p.parts(known)
	if from >= min(len(p.Keys), len(with.Keys)) || p.Keys[from] != with.Keys[from] { // almost always
		return known
	}
	n := from + kv.Common(p.Keys[from:], with.Keys[from:])
	return p.tokens(n)
}

// HasOnly reports whether m has the given leading tokens of p by its events, and nothing shows that it has,
// or will soon have, more.
func (x *indexes) HasOnly(m *Member, p Prompt, tokens int) bool {
	ix := x.of(&p)
	return ix != nil && ix.HasOnly(m.Holder, p.Keys, min(p.parts(tokens), len(p.Keys)))
}

// Heard returns how many of the given leading tokens of p m has by its events. known is false where events
// do not tell: there is no index, or the index has dropped some of m's blocks to save memory.
func (x *indexes) Heard(m *Member, p Prompt, tokens int) (of int, known bool) {
	ix := x.of(&p)
	if ix == nil || ix.Truncated(m.Holder) {
		return 0, false
	}
	parts := min(p.parts(tokens), len(p.Keys))
	return p.tokens(ix.Heard(m.Holder, p.Keys[:parts])), true
}

// Matches is the answer of the index for one prompt: the match of each member.
type Matches struct {
	index *kv.Index
	depth []int32
	chunk float64
	unit  int // tokens of a block
	most  int // blocks that can be found
}

// Matches returns what depth, which [Roster.Match] set, says about p.
func (x *indexes) Matches(depth []int32, p Prompt) Matches {
	unit := p.Unit()
	return Matches{x.of(&p), depth, p.Chunk, unit, (p.Tokens - 1) / unit}
}

// Tokens returns how many leading tokens of the prompt m has. They are whole blocks, and fewer than all its
// tokens, since an engine computes the last one anyway.
func (x *Matches) Tokens(m *Member) int {
	if int(m.Holder) >= len(x.depth) {
		return 0
	}
	n := int(x.depth[m.Holder])
	if x.chunk > 0 {
		n = int(float64(n)*x.chunk) / x.unit
	}
	return min(n, x.most) * x.unit
}

// Below returns how many tokens of the match of m the engine must read back, by tier. below is what
// [Roster.MatchTiers] set.
func (x *Matches) Below(m *Member, below []kv.Below) kv.Below {
	if int(m.Holder) >= len(below) || x.chunk > 0 {
		return kv.Below{}
	}
	return below[m.Holder].Times(x.unit)
}

// Truncated reports whether the index has dropped something of m for its byte budget, so that its depth may
// be too small.
func (x *Matches) Truncated(m *Member) bool { return x.index != nil && x.index.Truncated(m.Holder) }

// Match sets depth to the number of leading parts of p that each holder has.
func (x *indexes) Match(p Prompt, depth []int32) { x.MatchTiers(p, depth, nil) }

// MatchTiers is Match. For a holder h below len(below), below[h] gets the parts that are in no GPU memory.
func (x *indexes) MatchTiers(p Prompt, depth []int32, below []kv.Below) {
	keys := p.Keys
	if p.Tokens > 0 && !p.text() {
		keys = keys[:min(len(keys), (p.Tokens-1)/p.Unit())]
	}
	if ix := x.of(&p); ix != nil && len(keys) > 0 {
		ix.MatchTiers(keys, depth, below)
		return
	}
	clear(depth)
	clear(below)
}

func (x *indexes) forget(h kv.Holder, textToo bool) {
	if ix := x.blocks.Load(); ix != nil {
		ix.Forget(h)
	}
	if tx := x.text.Load(); tx != nil && textToo {
		tx.Forget(h)
	}
}

// Expire drops guesses from the index that were not confirmed in time.
func (x *indexes) Expire(now time.Time) {
	if ix := x.blocks.Load(); ix != nil {
		ix.Expire(now)
	}
	if tx := x.text.Load(); tx != nil {
		tx.Expire(now)
	}
}

// Taken is [kv.Index.Taken] of the block index.
func (x *indexes) Taken(taken []int32) (returns float64) {
	if ix := x.blocks.Load(); ix != nil {
		return ix.Taken(taken)
	}
	clear(taken)
	return 0
}

// IndexStats describes the block index, without text.
func (x *indexes) IndexStats() kv.Stats {
	if ix := x.blocks.Load(); ix != nil {
		return ix.Stats()
	}
	return kv.Stats{}
}

// Counts counts. The caller need not hold the lock of the members.
func (x *indexes) Counts() Counts {
	c := Counts{map[kv.Holder]int{}, map[kv.Holder]int{}, map[kv.Holder]uint64{}}
	for _, h := range x.IndexStats().Holders {
		c.blocks[h.Holder], c.truncated[h.Holder] = h.Blocks, h.Truncated
	}
	if tx := x.text.Load(); tx != nil {
		for _, h := range tx.Stats().Holders {
			c.chunks[h.Holder] = h.Blocks
		}
	}
	return c
}
