// Package kv names the blocks of a prompt and knows which engine holds which of them.
//
// A block's [Key] depends on everything before it, so two prompts share a leading key exactly if they share
// all tokens up to it. What blocks there are is kept once, in runs of up to 64 that follow each other; who
// has them is a word a run. [Index.Match] walks a prompt run by run and drops every holder at its first hole,
// so that it is exact whatever the order in which blocks came and went. Each [Holder] translates its engine's
// own names of blocks, which mean nothing elsewhere.
package kv

import (
	"math"
	"sync"
	"sync/atomic"
)

// Holder is a small dense number for one engine's cache; whoever owns the Index gives them out and may use
// one again after [Index.Forget].
type Holder uint16

// Options says how an Index is built. The zero Chain makes an Index that places nothing.
type Options struct {
	Chain      Chain // blocks of other sizes are not indexed
	ByteBudget int64 // bytes that memberships may take; 0: as many as there are
}

// Index knows for every holder which blocks it has, from the engines' own events. It is safe for concurrent
// use.
//
// Writers of one holder follow each other by its own lock. What readers see changes under mu, which a writer
// takes for a few hundred blocks at most, and not while it hashes tokens or translates names: a reader never
// waits for a whole batch.
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

// holding returns that of h, which it makes if need be.
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
