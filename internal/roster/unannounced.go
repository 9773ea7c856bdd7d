package roster

import (
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

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

// Expect notes that m has stored all blocks of p at now. cached is the number of tokens that m had in its
// cache before, by its own count; -1 is unknown. The events of m must announce the other blocks. With an
// unknown count p is noted only if the engine offers a replay, because the engine may have had blocks that
// the index lacks.
func (r *Roster[M]) Expect(m *Member, p Prompt, cached int, now time.Time) {
	if len(p.Keys) == 0 || p.text() {
		return
	}
	ix := r.index.Load()
	if ix == nil {
		return
	}
	r.members.Lock()
	announces := m.announces(cached, ix.chain.BlockSize())
	r.members.Unlock()
	if !announces { // most prompts of a pool without events end here, without a lookup in the index
		return
	}
	keys := ix.Reachable(m.Holder, p.Keys)
	heard := len(keys) == 0 || ix.Truncated(m.Holder) || ix.Heard(m.Holder, keys) == len(keys)
	if heard || len(keys)-r.parts(&p, max(cached, 0)) < surelyStored {
		return
	}
	r.members.Lock()
	defer r.members.Unlock()
	if m.announces(cached, ix.chain.BlockSize()) {
		m.unannounced.count(now)
	}
}

// announces reports whether the events of m must announce what m stores for a prompt. indexed is the block
// size of the index. A member that had blocks in its cache does store blocks.
func (m *Member) announces(cached, indexed int) bool {
	u := &m.unannounced
	if cached > 0 {
		u.state.CompareAndSwap(0, 1)
	}
	countable := cached >= 0 || m.R.Facts.Events.Replay != ""
	return countable && u.state.Load() > 0 && m.Believed() == replica.Live && !m.keepsNone() &&
		m.sizeFits(indexed)
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
