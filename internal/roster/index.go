package roster

import (
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
)

// index is the block index with the chain that it was made for.
type index struct {
	*kv.Index
	chain kv.Chain
}

func (r *Roster[M]) newIndex(c kv.Chain) *index {
	return &index{kv.NewIndex(kv.Options{Chain: c, ByteBudget: r.indexBytes}), c}
}

// chooseChain makes the index once a block size is known.
func (r *Roster[M]) chooseChain() {
	if r.index.Load() != nil {
		return
	}
	for _, m := range r.Members {
		if size := m.member().R.Facts.BlockSize; size > 0 {
			r.index.Store(r.newIndex(kv.NewChain("", size)))
			return
		}
	}
}

// Chain returns the chain by which the pool's index names blocks of model, and the adapter that its root takes. ok is false while no member serves
// the model with blocks of the indexed size.
//
// One chain serves all base models of the pool: an engine serves one base model only, so blocks of another never lie on a candidate.
func (r *Roster[M]) Chain(model string) (chain kv.Chain, adapter string, ok bool) {
	ix := r.index.Load()
	if ix == nil {
		return kv.Chain{}, "", false
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, e := range r.Members {
		m := e.member()
		if size := m.R.Facts.BlockSize; (size == 0 || size == ix.chain.BlockSize()) && m.R.Serves(model) {
			return ix.chain, m.R.Adapter(model), true
		}
	}
	return kv.Chain{}, "", false
}

// BlockSize returns the tokens of an indexed block, 0 while there is no index.
func (r *Roster[M]) BlockSize() int {
	if ix := r.index.Load(); ix != nil {
		return ix.chain.BlockSize()
	}
	return 0
}

// Match sets depth to the number of leading blocks of keys that each holder has.
func (r *Roster[M]) Match(keys []kv.Key, depth []int32) {
	if ix := r.index.Load(); ix != nil && len(keys) > 0 {
		ix.Match(keys, depth)
		return
	}
	clear(depth)
}

// Truncated reports whether the index has dropped blocks of m for its byte budget, so that its depths may be too small.
func (r *Roster[M]) Truncated(m *Member) bool {
	ix := r.index.Load()
	if ix == nil {
		return false
	}
	t, ok := any(ix.Index).(interface{ Truncated(kv.Holder) bool })
	return ok && t.Truncated(m.Holder)
}

// Apply takes over block events of id; those of an unknown member are dropped. b is not kept.
func (r *Roster[M]) Apply(id replica.ID, b *kv.Batch) kv.Applied {
	ix := r.index.Load()
	r.Mu.Lock()
	m, ok := r.byID[id]
	r.Mu.Unlock()
	if ix == nil || !ok {
		return kv.Applied{}
	}
	return ix.Apply(m.member().Holder, b)
}

// Forget drops what is known of id's blocks.
func (r *Roster[M]) Forget(id replica.ID) {
	ix := r.index.Load()
	r.Mu.Lock()
	m, ok := r.byID[id]
	r.Mu.Unlock()
	if ix != nil && ok {
		ix.Forget(m.member().Holder)
	}
}

// Expire drops from the index what was only guessed and not confirmed in time.
func (r *Roster[M]) Expire(now time.Time) {
	if ix := r.index.Load(); ix != nil {
		ix.Expire(now)
	}
}

// IndexStats describes the block index.
func (r *Roster[M]) IndexStats() kv.Stats {
	if ix := r.index.Load(); ix != nil {
		return ix.Stats()
	}
	return kv.Stats{}
}

// guessTime is how much longer than predicted a prompt may take until its blocks must have been heard of; routeMemory is how long we remember what we
// sent to an engine that publishes no events.
const (
	guessTime   = 2 * time.Second
	routeMemory = 10 * time.Minute
)

// Speculate lets the index count the blocks of keys as m's before its events say so, within the given time. keys are kept: nobody may change them.
func (r *Roster[M]) Speculate(m *Member, keys []kv.Key, within time.Duration, now time.Time) {
	if len(keys) == 0 {
		return
	}
	ix := r.index.Load()
	r.Mu.Lock()
	holder, usable, trust := m.Holder, !m.Gone, m.Believed()
	r.Mu.Unlock()
	if ix == nil || !usable {
		return
	}
	until := now.Add(2*within + guessTime)
	if trust == replica.Off {
		until = now.Add(routeMemory)
	}
	ix.Speculate(holder, keys, until)
}
