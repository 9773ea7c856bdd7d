// Package roster keeps the members of one pool. It knows which holder of the block index stands for which
// member, and how far the index is believed about each member.
package roster

import (
	"slices"
	"sync"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Options says how a Roster is made. The zero value works.
type Options struct {
	IndexBytes int64 // memory for the indexes; 0: no limit
}

// Roster answers the questions, and takes the news, that all kinds of pool have in common. A pool embeds it,
// and each of its members, of type M, embeds a [Member]. Its methods are safe for concurrent use. Only the
// pool can call the methods that take a [Member], since only the pool has members.
//
// The members have one lock for the roster and the pool around it. The index has a lock of its own. Looking
// up a prompt and applying a batch hold the members' lock only while they find a member.
type Roster[M Entry] struct {
	indexes
	newMember func() M

	// feed is held, for reading, while routing history goes into the indexes. A goroutine that turns to events
	// can therefore wait until this is over. feed is locked before the lock of the members.
	feed sync.RWMutex

	guesses guessLog // for other routers

	members *Members[M] // their lock guards the following

	shared   Heard // may be nil
	indexing Indexing
	free     []kv.Holder // holders given back
	holders  int         // holders ever given out
}

// Entry is what embeds a [Member] by value and is used by pointer.
type Entry interface {
	comparable
	member() *Member
}

// Members is the members of a pool under the pool's one lock. The lock guards the fields below and the other
// state of the pool. The maker of the roster, a pool, gets Members and keeps it private: no other code can
// take the lock or see a member.
type Members[M Entry] struct {
	sync.Mutex

	All  []M // in the order of the configuration
	View *View
	byID map[replica.ID]M

	serving // of View
}

// Find returns the member id, false where there is none. The caller holds the lock.
func (ms *Members[M]) Find(id replica.ID) (m M, ok bool) {
	m, ok = ms.byID[id]
	return m, ok
}

// Member is the state of one replica that both kinds of pools need. Guarded by the lock of [Members].
type Member struct {
	R           *replica.Replica // immutable
	Slot        int              // in [Members.All] and the View
	Holder      kv.Holder        // of its blocks in the index; immutable
	Gone        bool             // it left the pool
	Healthy     bool
	mode        Mode
	trust       replica.Trust // of its event stream
	blocks      blocks
	Reason      string // why not healthy
	unannounced unannounced
	former      replica.ID            // another name that it had before, "" for none
	Others      replica.OtherRequests // requests on the engine that are in no lease of this router
}

// blocks is what is known of the form of a member's blocks.
type blocks struct {
	told  int      // tokens of a block by its events, 0 unknown
	chain kv.Chain // of its blocks in the index
}

func (m *Member) member() *Member { return m }

// View is the list of members at one moment. It is immutable; a change makes another one, so that pointers
// can be compared.
type View struct {
	Replicas []*replica.Replica // a candidate's Slot counts in this list

	pulls bool // some member lets other engines pull blocks
}

// New returns a roster without members, and its members under their lock. newMember makes an empty member.
func New[M Entry](o Options, newMember func() M) (*Roster[M], *Members[M]) {
	r := &Roster[M]{
		indexes: indexes{bytes: o.IndexBytes}, newMember: newMember,
		members: &Members[M]{byID: map[replica.ID]M{}, View: &View{}},
	}
	r.blocks.Store(r.newIndex())
	return r, r.members
}

// CurrentView returns the list of members as it is now.
func (r *Roster[M]) CurrentView() *View {
	r.members.Lock()
	defer r.members.Unlock()
	return r.members.View
}

// Holders returns how long the depth for [Roster.Match] must be.
func (r *Roster[M]) Holders() int {
	r.members.Lock()
	defer r.members.Unlock()
	return r.holders
}

// SetTrust says how far id's blocks in the index can be believed.
func (r *Roster[M]) SetTrust(id replica.ID, t replica.Trust) {
	r.members.Lock()
	defer r.members.Unlock()
	if m, ok := r.members.byID[id]; ok {
		m.member().trust = t
		m.member().unannounced.again()
	}
}

// SetHealthy says whether id may be chosen; reason is for people.
func (r *Roster[M]) SetHealthy(id replica.ID, ok bool, reason string) {
	r.members.Lock()
	defer r.members.Unlock()
	if m, known := r.members.byID[id]; known {
		m.member().Healthy, m.member().Reason = ok, reason
	}
}

// Draining is why a member takes no requests that an operator drains.
const Draining = "it is being drained"

// Takes reports whether new requests may go to m: it is there, healthy and not being drained.
func (m *Member) Takes() bool { return !m.Gone && m.Healthy && !m.R.Draining }

// Avoided reports whether m is among ids.
func (m *Member) Avoided(ids []replica.ID) bool {
	return len(ids) > 0 && slices.Contains(ids, m.R.ID)
}

// Uncounted records n more requests of this router on id that have no lease, or fewer if n is below 0.
func (r *Roster[M]) Uncounted(id replica.ID, n int) {
	r.members.Lock()
	defer r.members.Unlock()
	if m, ok := r.members.Find(id); ok {
		m.member().Others.Uncounted(n)
	}
}

// Unseen returns how many requests of unknown clients id has on average, and whether there are such requests
// for certain.
func (r *Roster[M]) Unseen(id replica.ID) (mean float64, sure bool) {
	r.members.Lock()
	defer r.members.Unlock()
	if m, ok := r.members.Find(id); ok {
		return m.member().Others.Unseen()
	}
	return 0, false
}

// Servers names the set of members that answer for model, without those to avoid. Two requests have the same
// name if the same members may answer both. 0 names the empty set.
func (r *Roster[M]) Servers(model string, avoid []replica.ID) uint64 {
	r.members.Lock()
	defer r.members.Unlock()
	s := r.members.servers(model)
	if len(avoid) == 0 {
		return s.name
	}
	name := s.name
	for i, m := range r.members.View.Replicas {
		if s.bySlot[i] && slices.Contains(avoid, m.ID) {
			name -= nameOf(m.ID)
		}
	}
	return name
}

// Base returns the base model of a model, "" while no member serves it.
func (r *Roster[M]) Base(model string) string {
	r.members.Lock()
	defer r.members.Unlock()
	return r.members.servers(model).base
}

// Pulls reports whether some member lets other engines pull blocks.
func (r *Roster[M]) Pulls() bool { return r.CurrentView().pulls }

// Sources appends the members of the pool that serve model, hold blocks of the prompt, and let other engines
// pull them. sources keeps the members with the most tokens.
func (r *Roster[M]) Sources(sources []Source, model string, of Matches) []Source {
	r.members.Lock()
	defer r.members.Unlock()
	if !r.members.View.pulls {
		return sources
	}
	serves := r.members.Serving(model)
	for i, e := range r.members.All {
		m := e.member()
		if m.R.PullPort == 0 || !serves[i] || !m.Healthy {
			continue
		}
		if tokens := of.Tokens(m); tokens > 0 {
			sources = keepMost(sources, Source{m.R, tokens})
		}
	}
	return sources
}

// Status describes m, a member. The caller holds the lock of the members.
func (r *Roster[M]) Status(m *Member, c Counts) Status {
	matched := r.members.servers(m.R.Facts.Model).chain.BlockSize()
	return Status{
		ID: m.R.ID, Healthy: m.Healthy, Reason: m.Reason, Trust: m.Believed(), Note: m.note(matched),
		BlockSize: m.blockSize(),
		Blocks:    c.blocks[m.Holder], Chunks: c.chunks[m.Holder], Truncated: c.truncated[m.Holder] > 0,
	}
}
