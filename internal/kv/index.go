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

// Options says how an Index is built. The zero Chain makes an Index that places nothing.
type Options struct {
	Chain      Chain // blocks of other sizes are not indexed
	ByteBudget int64 // bytes that memberships may take; 0: no limit
}

// Index knows for every holder which blocks it has, from the engines' own events. It is safe for concurrent
// use.
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
type counts struct{ orphans, truncated atomic.Uint64 }

// NewIndex returns an empty Index.
func NewIndex(o Options) *Index {
	budget := o.ByteBudget
	if budget <= 0 {
		budget = math.MaxInt64
	}
	return &Index{
		chain: o.Chain, budget: budget, content: newContent(),
		guesses: guesses{maxKeys: int(budget / guessShare / keyBytes)},
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
		ix.holdings[h] = &holding{holder: h}
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
