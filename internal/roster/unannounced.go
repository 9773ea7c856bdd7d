package roster

import (
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
	announces bool      // an event has come before, or the member has found a prefix in its cache
	prompts   int       // prompts that stored blocks without an event
	since     time.Time // when the first such prompt was answered
}

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
	keys := ix.Reachable(m.Holder, p.Keys)
	heard := len(keys) == 0 || ix.Truncated(m.Holder) || ix.Heard(m.Holder, keys) == len(keys)
	stored := len(keys) - r.parts(&p, max(cached, 0))
	r.members.Lock()
	defer r.members.Unlock()
	u := &m.unannounced
	u.announces = u.announces || cached > 0
	countable := cached >= 0 || m.R.Facts.Events.Replay != ""
	if heard || stored < surelyStored || !countable || !u.announces || m.Believed() != replica.Live ||
		m.keepsNone() || !m.sizeFits(ix.chain.BlockSize()) {
		return
	}
	if u.prompts == 0 {
		u.since = now
	}
	u.prompts++
}

// Unannounced returns how many prompts of id stored blocks without an event, and for how long no event has
// come. It returns 0 while both are usual.
func (r *Roster[M]) Unannounced(id replica.ID, now time.Time) (prompts int, since time.Duration) {
	r.members.Lock()
	defer r.members.Unlock()
	m, ok := r.members.byID[id]
	if !ok {
		return 0, 0
	}
	u := &m.member().unannounced
	since = now.Sub(u.since)
	if m.member().Believed() != replica.Live || u.prompts < silentPrompts || since < silentFor {
		return 0, 0
	}
	return u.prompts, since
}

// told notes that an event of m has arrived.
func (r *Roster[M]) told(m *Member) {
	r.members.Lock()
	defer r.members.Unlock()
	m.unannounced = unannounced{announces: true}
}
