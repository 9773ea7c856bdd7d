// Package kv names the blocks of a prompt and knows which engine holds which of them.
package kv

import (
	"sync"
	"time"
)

// Holder is a small dense number for one engine's cache; the pool that owns the Index gives them out.
type Holder uint16

// Options says how an Index is built. The zero Chain makes an Index that places nothing.
type Options struct {
	Chain      Chain // blocks of other sizes are not indexed
	ByteBudget int64 // bytes that memberships may take, 0 = 512 MiB
}

// Index knows for every holder which blocks it has, from the engines' own events. It is safe for concurrent use: many readers, one writer at a time.
type Index struct {
	mu    sync.RWMutex
	chain Chain
}

// NewIndex returns an empty Index.
func NewIndex(o Options) *Index { return &Index{chain: o.Chain} }

// Applied counts, in blocks, what a batch did.
type Applied struct {
	Stored  int // copies placed
	Removed int // copies taken away
	Orphans int // not placed: the parent is unknown to the holder
	Skipped int // not placed: masked, of another block size, or of a group that cannot serve a prefix
}

// Apply takes over what the engine behind h published.
func (ix *Index) Apply(h Holder, b *Batch) Applied { return Applied{} }

// Forget drops everything of h.
func (ix *Index) Forget(h Holder) {}

// ForgetTier drops what h holds in tier t.
func (ix *Index) ForgetTier(h Holder, t Tier) {}

// Match sets depth[h], for every holder h below len(depth), to the number of leading blocks of keys that h holds without a hole.
func (ix *Index) Match(keys []Key, depth []int32) { clear(depth) }

// Speculate lets Match believe that h holds all of keys until its events say so, or until Expire is called with a time after until.
func (ix *Index) Speculate(h Holder, keys []Key, until time.Time) {}

// Expire drops what was speculated and not confirmed in time.
func (ix *Index) Expire(now time.Time) {}

// Stats describes an Index.
type Stats struct {
	Blocks      int   // distinct blocks that some holder has from block 0 on
	Memberships int   // (holder, block) pairs
	Bytes       int64 // estimate of the memory in use
	Orphans     uint64
	Truncated   uint64
	Holders     []HolderStats
}

// HolderStats is the part of Stats that belongs to one holder.
type HolderStats struct {
	Holder Holder
	Blocks int
}

// Stats returns the current counts.
func (ix *Index) Stats() Stats { return Stats{} }
