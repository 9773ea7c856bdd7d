// Package kv names the blocks of a prompt and knows which engine holds which of them.
//
// A block's [Key] depends on everything before it, so two prompts share a leading key exactly if they share all tokens up to it. An engine's events are
// applied to one tree per [Holder], which knows for every block whether all blocks before it are there as well. Only such blocks stand in the directory
// that [Index.Match] asks, so that the holders of a prompt's blocks can but become fewer along the prompt, and a few probes find where each one ends.
package kv

import (
	"cmp"
	"sync"
)

// Holder is a small dense number for one engine's cache; whoever owns the Index gives them out and may use one again after [Index.Forget].
type Holder uint16

// Options says how an Index is built. The zero Chain makes an Index that places nothing.
type Options struct {
	Chain      Chain // blocks of other sizes are not indexed
	ByteBudget int64 // bytes that memberships may take, 0 = 512 MiB
}

const defaultByteBudget = 512 << 20

// Index knows for every holder which blocks it has, from the engines' own events. It is safe for concurrent use: many readers, one writer at a time.
type Index struct {
	chain  Chain
	budget int64

	mu      sync.RWMutex // guards the following
	trees   []*tree      // by Holder; nil for one that has nothing
	dir     directory
	guesses guesses
	tick    uint32 // batches applied, the age of memberships

	orphans, truncated uint64 // of trees that are no more
}

// NewIndex returns an empty Index.
func NewIndex(o Options) *Index {
	budget := cmp.Or(max(o.ByteBudget, 0), defaultByteBudget)
	return &Index{chain: o.Chain, budget: budget, guesses: newGuesses(budget / guessShare)}
}

// treeLocked returns the tree of h, which it plants if need be.
func (ix *Index) treeLocked(h Holder) *tree {
	for len(ix.trees) <= int(h) {
		ix.trees = append(ix.trees, nil)
	}
	if ix.trees[h] == nil {
		ix.trees[h] = newTree(h, &ix.dir)
	}
	return ix.trees[h]
}

// foundLocked returns the tree of h, or nil.
func (ix *Index) foundLocked(h Holder) *tree {
	if int(h) < len(ix.trees) {
		return ix.trees[h]
	}
	return nil
}
