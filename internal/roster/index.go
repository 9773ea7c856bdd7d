package roster

import (
	"cmp"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// index is the block index with the chain that it was made for.
type index struct {
	*kv.Index
	chain kv.Chain
}

func (r *Roster[M]) newIndex(c kv.Chain) *index {
	return &index{kv.NewIndex(kv.Options{Chain: c, ByteBudget: r.indexBytes - r.indexBytes/textShare}), c}
}

// chooseChain makes the index once a block size is known, and anew when another one turns out to be right.
func (r *Roster[M]) chooseChain() {
	if r.indexing.Mode == Off || r.fixed && r.index.Load() != nil {
		return
	}
	if size := r.bestSize(); size > 0 && size != r.BlockSize() {
		r.index.Store(r.newIndex(kv.NewChain("", size)))
	}
}

// bestSize returns the block size that the index should have, 0 unknown. An index stays if some engine's
// events confirm its size. Next come events that tell another size than was expected of their engine, since
// the facts of other engines are probably wrong in the same way. If the engines do differ, the first known
// size decides.
func (r *Roster[M]) bestSize() int {
	now := r.BlockSize()
	if now > 0 && r.anyMember(func(m *Member) bool { return m.eventBlockSize == now }) > 0 {
		return now
	}
	if corrected := r.anyMember(
		func(m *Member) bool { return m.eventBlockSize > 0 && m.eventBlockSize != m.R.Facts.BlockSize },
	); corrected > 0 {
		return corrected
	}
	if now > 0 && r.anyMember(func(m *Member) bool { return m.blockSize() == now }) > 0 {
		return now
	}
	if known := r.anyMember(func(m *Member) bool { return m.blockSize() > 0 }); known > 0 {
		return known
	}
	return now
}

// anyMember returns the block size of the first member for which meant returns true, 0 if there is none.
func (r *Roster[M]) anyMember(meant func(*Member) bool) int {
	for _, e := range r.members.All {
		if m := e.member(); meant(m) {
			return m.blockSize()
		}
	}
	return 0
}

// blockSize returns the tokens of m's blocks, 0 unknown: by its events, else by its facts or the
// configuration.
func (m *Member) blockSize() int { return cmp.Or(m.eventBlockSize, m.R.Facts.BlockSize) }

// sizeFits reports whether m's blocks can be in an index of blocks of this size.
func (m *Member) sizeFits(indexed int) bool {
	size := m.blockSize()
	return size == 0 || size == indexed
}

// UsualBlock is the tokens of a block in vLLM by default, for a member that has not reported its own.
const UsualBlock = 16

// Unit returns the tokens of an indexed block, or UsualBlock while there is no index.
func (r *Roster[M]) Unit() int { return cmp.Or(r.BlockSize(), UsualBlock) }

// Chain returns the chain by which the pool's index names blocks of model, and the adapter for its root. ok
// is false while no member serves the model with blocks of the indexed size.
//
// One chain serves all base models of the pool. An engine serves one base model only, so a candidate never
// has blocks of another model.
func (r *Roster[M]) Chain(model string) (chain kv.Chain, adapter string, ok bool) {
	ix := r.index.Load()
	if ix == nil {
		return kv.Chain{}, "", false
	}
	r.members.Lock()
	defer r.members.Unlock()
	for _, e := range r.members.All {
		m := e.member()
		if m.sizeFits(ix.chain.BlockSize()) && m.R.Serves(model) {
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

// Apply enters block events of id. It drops the events of an unknown member, and all events if the pool does
// not follow them. b is not kept.
func (r *Roster[M]) Apply(id replica.ID, b *kv.Batch) kv.Applied {
	r.members.Lock()
	e, ok := r.members.byID[id]
	if !ok || r.indexing.Mode != Events {
		r.members.Unlock()
		return kv.Applied{}
	}
	m := e.member()
	if m.eventBlockSize == 0 {
		if m.eventBlockSize = kv.BlockSizeIn(b, m.R.Facts.BlockSize); m.eventBlockSize > 0 {
			r.chooseChain()
		}
	}
	holder, ix := m.Holder, r.index.Load()
	r.members.Unlock()
	if ix == nil {
		return kv.Applied{}
	}
	did := ix.Apply(holder, b)
	m.unannounced.heard() // behind Apply, so that no block of the batch counts as unannounced
	return did
}

// ReportedBlockSize returns the tokens of a block by id's events, 0 before the first, and by its facts, 0
// unknown.
func (r *Roster[M]) ReportedBlockSize(id replica.ID) (reported, expected int) {
	r.members.Lock()
	defer r.members.Unlock()
	if e, ok := r.members.byID[id]; ok {
		return e.member().eventBlockSize, e.member().R.Facts.BlockSize
	}
	return 0, 0
}

// Forget drops the index of id's blocks and text. The block size is taken from id's events again.
func (r *Roster[M]) Forget(id replica.ID) {
	r.members.Lock()
	e, ok := r.members.byID[id]
	if ok {
		e.member().eventBlockSize = 0
		e.member().unannounced.forget()
	}
	r.members.Unlock()
	if ok {
		r.forget(e.member().Holder, true)
	}
}

func (r *Roster[M]) forget(h kv.Holder, textToo bool) {
	if ix := r.index.Load(); ix != nil {
		ix.Forget(h)
	}
	if tx := r.text.Load(); tx != nil && textToo {
		tx.Forget(h)
	}
}

// Expire drops guesses from the index that were not confirmed in time.
func (r *Roster[M]) Expire(now time.Time) {
	if ix := r.index.Load(); ix != nil {
		ix.Expire(now)
	}
	if tx := r.text.Load(); tx != nil {
		tx.Expire(now)
	}
}

// IndexStats describes the block index, without text.
func (r *Roster[M]) IndexStats() kv.Stats {
	if ix := r.index.Load(); ix != nil {
		return ix.Stats()
	}
	return kv.Stats{}
}
