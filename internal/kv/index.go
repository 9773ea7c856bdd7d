// Package kv names the blocks of a prompt and knows which engine holds which block.
//
// A block's [Key] depends on everything before the block. Two prompts share a leading key exactly if they
// share all tokens up to the block. The index keeps each block once, in runs of up to 64 blocks that follow
// each other. One word per run and set of blocks says which blocks the set has. [Index.Match] walks a prompt
// run by run and drops every holder at its first hole. Match is therefore exact, whatever the order in which
// blocks came and went. Each [Holder] translates its engine's own block names, which mean nothing elsewhere.
package kv

import (
	"math"
	"sync"
	"sync/atomic"
)

// Holder is a small dense number for one engine's cache. The owner of the Index gives the numbers out, and
// may reuse one after [Index.Forget].
type Holder uint16

// Options says how an Index is built.
type Options struct {
	Chain      Chain // of each holder until [Index.Name] gives it another one; the zero Chain places nothing
	ByteBudget int64 // bytes that memberships may take; 0: no limit
}

// Index knows for every holder which blocks it has, from the engines' own events. It is safe for concurrent
// use. Holders may have blocks of different sizes: a key depends on the size, so none has two meanings.
//
// Each holding has its own lock, which orders the writers of one holder. Everything that readers see changes
// under mu. A writer holds mu for a few hundred blocks at most, and never while it hashes tokens or
// translates names. A reader therefore never waits for a whole batch.
//
// Long: each field has a guard of its own.
type Index struct {
	chain  Chain
	budget int64

	mu       spinLock // guards the following
	content  *content
	columns  columns
	holdings []*holding // by Holder; nil for one never heard of

	guesses guesses
	ahead   aheads
	clock   clock
	tick    atomic.Uint32 // batches applied, the age of memberships
	cut     atomic.Bool   // blocks of some holding were dropped for the budget
	named   atomic.Int64  // bytes of all holdings
	retired counts        // of forgotten holders
	idle    idleMemory
}

// idleMemory is memory of lookups and events, to be used again.
type idleMemory struct {
	parts sync.Pool // of *part
	ways  sync.Pool // of *steps
}

// counts are read by anyone.
type counts struct {
	orphans, truncated          atomic.Uint64
	foreseen, evicted, foretold atomic.Uint64 // see [Victims]
}

// retire adds the counts of o, which start again at zero.
func (c *counts) retire(o *counts) {
	c.orphans.Add(o.orphans.Swap(0))
	c.truncated.Add(o.truncated.Swap(0))
	c.foreseen.Add(o.foreseen.Swap(0))
	c.evicted.Add(o.evicted.Swap(0))
	c.foretold.Add(o.foretold.Swap(0))
}

// NewIndex returns an empty Index.
func NewIndex(o Options) *Index {
	budget := o.ByteBudget
	if budget <= 0 {
		budget = math.MaxInt64
	}
	return &Index{
		chain: o.Chain, budget: budget, content: newContent(),
		guesses: guesses{maxKeys: int(budget / guessShare / keyBytes)}, clock: clock{life: usualLife},
	}
}

// holding returns the holding of h, and makes it if necessary.
func (ix *Index) holding(h Holder) *holding {
	if t := ix.known(h); t != nil {
		return t
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for len(ix.holdings) <= int(h) {
		ix.holdings = append(ix.holdings, nil)
	}
	if ix.holdings[h] == nil {
		ix.holdings[h] = &holding{ix: ix, holder: h, dict: dictionary{chain: ix.chain}}
	}
	return ix.holdings[h]
}

// known returns the holding of h, or nil.
func (ix *Index) known(h Holder) *holding {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if int(h) < len(ix.holdings) {
		return ix.holdings[h]
	}
	return nil
}

// Name makes c the chain of h: blocks of other sizes are not placed. Where h had another chain, all that is
// known of h is forgotten.
func (ix *Index) Name(h Holder, c Chain) {
	t := ix.holding(h)
	t.mu.Lock()
	was := t.dict.chain
	t.dict.chain = c
	t.mu.Unlock()
	if was != c {
		ix.Forget(h)
	}
}

func (ix *Index) keyAt(at cell) Key {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.content.key(at)
}

// Apply applies the events that the engine behind h published. Apply keeps nothing of b. Readers see the
// events one by one, and long events in parts.
//
// A block is not placed if h does not have its parent. Such a block never becomes the start of a prompt. The
// index does not remember the block for the case that its parent comes later. Removing a block that was not
// placed does nothing.
func (ix *Index) Apply(h Holder, b *Batch) Applied {
	t := ix.holding(h)
	t.mu.Lock()
	t.glance.heard.Store(true)
	ix.tick.Add(1)
	a := intake{t: t}
	warm := 0
	for i := range b.Events {
		e := &b.Events[i]
		if i >= warm {
			warm = t.warm(b.Events, i)
		}
		switch e.Kind {
		case Stored:
			if e.Ahead > 0 {
				ix.ahead.add(h)
			}
			a.store(e)
			if ix.overBudget(t) {
				t.mu.Unlock()
				ix.trim()
				t.mu.Lock()
			}
		case Removed:
			a.Removed += t.remove(e)
		case Cleared:
			a.Removed += t.clear(e.Tier)
		}
	}
	t.awaited = nil
	t.grade()
	t.settle()
	t.account()
	t.mu.Unlock()
	ix.trim()
	return a.Applied
}

// Assume records that h has all of keys from now on. keys must start at block 0. This is the approximate
// mode for an engine without events: the router feeds it the prompts sent to the engine. h keeps at most
// limit blocks. The least recently used prompts lose their blocks first, the last block of a prompt before
// the others. Forget h before its events are applied.
//
// The keys serve as the engine's names: a Removed event with the keys as hashes removes the blocks.
func (ix *Index) Assume(h Holder, keys []Key, limit int) {
	t := ix.holding(h)
	t.mu.Lock()
	t.glance.heard.Store(true)
	limit = max(limit, 0)
	t.outlive(limit, t.assume(keys[:min(len(keys), limit)]))
	t.account()
	t.mu.Unlock()
	ix.trim()
}

// AssumeBehind is [Index.Assume] of one block behind the one before it. It reports false, and does nothing,
// if h does not have the block before.
func (ix *Index) AssumeBehind(h Holder, b Named) bool {
	t := ix.holding(h)
	t.mu.Lock()
	p := ix.idle.newPart(t, placeOf(GPU, NoGroup))
	ok := p.assumeBehind(b)
	ix.idle.donePart(p)
	t.account()
	t.mu.Unlock()
	ix.trim()
	return ok
}

// Invalidate takes back what was assumed of h from block number from of keys on. It drops this block and
// every block that was assumed behind it, including other prompts' blocks. An engine drops the end of a
// prompt before its beginning. If the engine had to compute a block again, it has no block behind that
// block. Invalidate is for holders that [Index.Assume] feeds.
func (ix *Index) Invalidate(h Holder, keys []Key, from int) {
	t := ix.known(h)
	if t == nil || from < 0 || from >= len(keys) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.dict.names.find(mix(uint64(keys[from])))
	if e == nil {
		return
	}
	for _, key := range t.behindCell(e.cell) {
		t.drop(EngineHash(key), placeOf(GPU, NoGroup))
		t.settleMany()
	}
	t.settle()
	t.account()
}

// Forget drops the blocks and the speculations of h. The [HolderStats] of h start again at zero. With many
// blocks Forget takes some time, and readers continue meanwhile.
func (ix *Index) Forget(h Holder) {
	ix.guesses.forget(h)
	ix.ahead.remove(h)
	t := ix.known(h)
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.glance.cut.Store(false)
	t.burn()
	t.dropStocks()
	ix.retired.retire(&t.counts)
	t.seen.named = false
	t.ages = ages{}
	t.glance.heard.Store(false)
	t.account()
}

// Named is a block that an engine has named: its key, and the key of the block before it, 0 before the first
// block of a prompt.
type Named struct{ Before, Key Key }

// Known appends to dst the blocks that the engine of h calls by hashes, as far as h has them. So blocks that
// another place has, too, can be told by their content, whatever an event has left out.
//
// An event of one cache group of a hybrid model does not say that a prompt can go on behind a block, and a
// hash that looks ahead stands for more than its block. Known appends no blocks of such holders.
func (ix *Index) Known(dst []Named, h Holder, hashes []EngineHash) []Named {
	t := ix.known(h)
	if t == nil || ix.ahead.has(h) {
		return dst
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.stocks) != 1 {
		return dst
	}
	for _, hash := range hashes {
		if e := t.dict.names.find(mix(uint64(hash))); e != nil {
			dst = append(dst, ix.around(e.cell))
		}
	}
	return dst
}

// around returns the block at a cell.
func (ix *Index) around(at cell) (b Named) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	parent := ix.content.runs.at(at.run()).parent
	if at.position() > 0 {
		parent = at - 1
	}
	if parent != 0 {
		b.Before = ix.content.key(parent)
	}
	b.Key = ix.content.key(at)
	return b
}
