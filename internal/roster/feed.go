package roster

import (
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file has what feeds the indexes: their mode, the size of their blocks, and events.

// SetIndexing makes x hold from now on. It panics where x does not say how long tokens of text are. Another
// mode forgets the blocks of every member, to be learnt anew; another way to cut text forgets the text.
func (r *Roster[M]) SetIndexing(x Indexing) {
	if x.ChunkBytes > 0 && !(x.CharsPerToken > 0) {
		panic("roster: text is matched without CharsPerToken")
	}
	r.feed.Lock()
	defer r.feed.Unlock()
	r.members.Lock()
	defer r.members.Unlock()
	was := r.indexing
	if x == was {
		return
	}
	r.indexing = x
	if x.Mode != was.Mode {
		r.blocks.Store(nil)
		if x.Mode != Off {
			r.blocks.Store(r.newIndex())
		}
		r.members.resize()
		for _, e := range r.members.All {
			m := e.member()
			m.mode = x.Mode
			m.trust = replica.TrustUnknown
			m.blocks.told = 0
			m.blocks.chain = kv.Chain{}
		}
	}
	r.text.Store(nil)
	if x.Mode != Off && x.ChunkBytes > 0 {
		r.text.Store(r.newText(x))
	}
}

// Chain returns the chain by which the index names blocks of model, and the adapter for its root. ok is false
// while no member that serves the model knows the size of its blocks.
//
// Models with blocks of one size share a chain. An engine serves one base model only, so a candidate never
// has blocks of another model.
func (r *Roster[M]) Chain(model string) (chain kv.Chain, adapter string, ok bool) {
	if r.blocks.Load() == nil {
		return kv.Chain{}, "", false
	}
	r.members.Lock()
	defer r.members.Unlock()
	s := r.members.servers(model)
	return s.chain, s.adapter, s.chain.BlockSize() > 0
}

// BlockSize returns the tokens of a block of the first member that knows, 0 if none does.
func (r *Roster[M]) BlockSize() int {
	r.members.Lock()
	defer r.members.Unlock()
	for _, m := range r.members.All {
		if size := m.member().blockSize(); size > 0 {
			return size
		}
	}
	return 0
}

// TextChain returns the chain that names chunks of text for model. adapter is the adapter that the chain's
// root takes, and perChunk the tokens of a chunk by estimate. ok is false while no member serves the model,
// and where no text is matched.
func (r *Roster[M]) TextChain(model string) (chain kv.TextChain, adapter string, perChunk float64, ok bool) {
	tx := r.text.Load()
	if tx == nil {
		return kv.TextChain{}, "", 0, false
	}
	r.members.Lock()
	defer r.members.Unlock()
	for _, e := range r.members.All {
		if m := e.member(); m.R.Serves(model) {
			return kv.NewTextChain(m.R.Facts.Model, tx.chunk), m.R.Adapter(model), tx.perChunk, true
		}
	}
	return kv.TextChain{}, "", 0, false
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
	if m.blocks.told == 0 {
		if m.blocks.told = kv.BlockSizeIn(b, m.R.Facts.BlockSize); m.blocks.told > 0 {
			r.members.resize()
		}
	}
	holder, ix := m.Holder, r.blocks.Load()
	heard, base := r.shared, m.R.Facts.Model
	chain, renamed := r.members.rename(m)
	r.members.Unlock()
	if renamed {
		ix.Name(holder, chain)
	}
	heard.tell(base, ix, holder, b, kv.Removed) // while the index knows the names
	did := ix.Apply(holder, b)
	heard.tell(base, ix, holder, b, kv.Stored)
	m.unannounced.heard() // behind Apply, so that no block of the batch counts as unannounced
	return did
}

// Heard takes in that an engine of a base model has stored or removed blocks in memory that other engines may
// read, too. Heard calls blocks to look the blocks up, if it wants them.
type Heard func(base string, kind kv.EventKind, blocks func() []kv.Named)

// SetShared makes heard take in what the events of all members say about shared memory. It is called before
// the first event.
func (r *Roster[M]) SetShared(heard Heard) {
	r.members.Lock()
	defer r.members.Unlock()
	r.shared = heard
}

// tell passes on the events of one kind about shared memory: a store, and files that may be on shared disks.
// A block keeps the content that the holder's GPU announced, because such events leave out what else the
// content depends on. Blocks that the holder does not know are left out.
func (heard Heard) tell(base string, ix *kv.Index, h kv.Holder, b *kv.Batch, kind kv.EventKind) {
	if heard == nil {
		return
	}
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind == kind && (e.Tier == kv.Shared || e.Tier == kv.Disk) && !e.Local {
			heard(base, kind, func() []kv.Named { return ix.Known(nil, h, e.Hashes) })
		}
	}
}

// ReportedBlockSize returns the tokens of a block by id's events, 0 before the first, and by its facts, 0
// unknown.
func (r *Roster[M]) ReportedBlockSize(id replica.ID) (reported, expected int) {
	r.members.Lock()
	defer r.members.Unlock()
	if e, ok := r.members.byID[id]; ok {
		return e.member().blocks.told, e.member().R.Facts.BlockSize
	}
	return 0, 0
}

// Forget drops the index of id's blocks and text. The block size is taken from id's events again.
func (r *Roster[M]) Forget(id replica.ID) {
	r.members.Lock()
	e, ok := r.members.byID[id]
	if ok {
		e.member().blocks.told = 0
		e.member().unannounced.forget()
		r.members.resize()
	}
	r.members.Unlock()
	if ok {
		r.forget(e.member().Holder, true)
	}
}

// Expect notes that m has stored all blocks of p at now. cached is the number of tokens that m had in its
// cache before, by its own count; -1 is unknown. The events of m must announce the other blocks. With an
// unknown count p is noted only if the engine offers a replay, because the engine may have had blocks that
// the index lacks.
func (r *Roster[M]) Expect(m *Member, p Prompt, cached int, now time.Time) {
	if len(p.Keys) == 0 || p.text() {
		return
	}
	ix := r.blocks.Load()
	if ix == nil {
		return
	}
	r.members.Lock()
	announces := m.announces(cached, &p)
	r.members.Unlock()
	if !announces { // most prompts of a pool without events end here, without a lookup in the index
		return
	}
	keys := ix.Reachable(m.Holder, p.Keys)
	heard := len(keys) == 0 || ix.Truncated(m.Holder) || ix.Heard(m.Holder, keys) == len(keys)
	if heard || len(keys)-p.parts(max(cached, 0)) < surelyStored {
		return
	}
	r.members.Lock()
	defer r.members.Unlock()
	if m.announces(cached, &p) {
		m.unannounced.count(now)
	}
}

// Unannounced returns how many prompts of id stored blocks without an event, and the time since the last
// event. It returns 0 while both are usual.
func (r *Roster[M]) Unannounced(id replica.ID, now time.Time) (prompts int, since time.Duration) {
	r.members.Lock()
	defer r.members.Unlock()
	m, ok := r.members.byID[id]
	if !ok {
		return 0, 0
	}
	u := &m.member().unannounced
	prompts, since = u.prompts(), now.Sub(u.since)
	if m.member().Believed() != replica.Live || prompts < silentPrompts || since < silentFor {
		return 0, 0
	}
	return prompts, since
}

// An engine publishes blocks in the step that stores them. So the blocks of a prompt are announced before
// its answer arrives. A publisher can die alone: its engine still serves and the connection stays open. Then
// nothing in the stream shows that the index is old. Only the answers show it.

const (
	// silentPrompts is how many prompts in a row must have stored blocks without an event. The answer to a
	// single prompt can overtake its event.
	silentPrompts = 3
	// silentFor is how long the event of the first such prompt may take. A healthy stream lags by milliseconds,
	// and by one or two seconds when an engine stores thousands of blocks in a step. After this time the
	// follower asks the publisher for a replay, which takes up to five seconds more.
	silentFor = 5 * time.Second
	// surelyStored is the least number of computed blocks with which a prompt counts. An engine computes one
	// block again, although it is cached, when the prompt ends with its last block.
	surelyStored = 2
)

// unannounced counts what a member has computed since its last event.
type unannounced struct {
	// 0 until the first sign that the member announces blocks, then one more than the prompts that stored blocks
	// without an event. Written under the lock of the pool, except by heard.
	state atomic.Int32
	since time.Time // when the first such prompt was answered; guarded by the lock of the pool
}

// heard notes that an event has arrived. It takes no lock, since plans wait for the lock of the pool.
func (u *unannounced) heard() { u.state.Store(1) }

// again begins to count anew. Known facts about the member stay.
func (u *unannounced) again() {
	if u.state.Load() > 1 {
		u.state.Store(1)
	}
}

// forget notes that nothing is known of the member.
func (u *unannounced) forget() { u.state.Store(0) }

// count counts a prompt that was answered at now. If its event arrives at the same moment, the prompt may
// count all the same: the next event ends the count.
func (u *unannounced) count(now time.Time) {
	state := u.state.Load()
	if state == 1 {
		u.since = now
	}
	u.state.CompareAndSwap(state, state+1)
}

// prompts is how many prompts stored blocks without an event.
func (u *unannounced) prompts() int { return int(max(u.state.Load()-1, 0)) }

// announces reports whether the events of m must announce what m stores for p. A member that had blocks in
// its cache does store blocks.
func (m *Member) announces(cached int, p *Prompt) bool {
	u := &m.unannounced
	if cached > 0 {
		u.state.CompareAndSwap(0, 1)
	}
	countable := cached >= 0 || m.R.Facts.Events.Replay != ""
	return countable && u.state.Load() > 0 && m.Believed() == replica.Live && !m.keepsNone() &&
		m.fits(p)
}
