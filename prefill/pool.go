// Package prefill owns the prefill pool: its block index and its queues of prompt tokens. It offers candidates and grants leases.
package prefill

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/scoring"
)

// Options says how a Pool is made. The zero value works.
type Options struct {
	Chain      kv.Chain // how blocks are named; zero: by the block size of the first member that knows its own
	IndexBytes int64    // memory for the block index, 0 as [kv.Options] has it
}

// Settings is what an operator may set about the pool. The zero value works.
type Settings struct {
	Speed   scoring.Speed // of every member; without its prefill half each member's is learned
	LoadTTL time.Duration // a load report older than this says nothing; 0: 10 s
}

const defaultLoadTTL = 10 * time.Second

// Pool is the prefill pool. Safe for concurrent use.
type Pool struct {
	indexBytes int64
	index      atomic.Pointer[index]

	mu       sync.Mutex // guards the following
	settings Settings
	members  []*member // in the order of the configuration
	byID     map[replica.ID]*member
	free     []kv.Holder // holders given back
	holders  int         // holders ever given out
	view     *View
	fit      scoring.Fit // of all members together, for those that were not measured yet
	typical  float64     // seconds of a usual request, running mean; 0 unknown
}

// index is the block index with the chain that it was made for.
type index struct {
	*kv.Index
	chain kv.Chain
}

// View is the list of members at one moment. It is immutable; a change makes another one, so that pointers can be compared.
type View struct {
	Replicas []*replica.Replica // a [Candidate]'s Slot counts in this list
}

// member is one prefill replica. Guarded by Pool.mu.
type member struct {
	r       *replica.Replica // immutable
	slot    int
	holder  kv.Holder
	gone    bool
	healthy bool
	reason  string // why not healthy
	trust   replica.Trust
	load    replica.Fused
	others  others
	queue   queue
	meter   scoring.Meter
	fit     scoring.Memory
	span    span
	counts  Counts
}

// Counts compares what we believed with what engines said.
type Counts struct {
	Predicted uint64 `json:"predicted_tokens"` // matched by the index, of answered requests
	Delivered uint64 `json:"delivered_tokens"` // cached by the engines' count, of the same requests
}

// New returns a pool without members.
func New(o Options) *Pool {
	p := &Pool{indexBytes: o.IndexBytes, byID: map[replica.ID]*member{}, view: &View{}}
	if o.Chain.BlockSize() > 0 {
		p.index.Store(p.newIndex(o.Chain))
	}
	return p
}

func (p *Pool) newIndex(c kv.Chain) *index {
	return &index{kv.NewIndex(kv.Options{Chain: c, ByteBudget: p.indexBytes}), c}
}

// Configure makes s hold from now on.
func (p *Pool) Configure(s Settings) {
	if s.LoadTTL <= 0 {
		s.LoadTTL = defaultLoadTTL
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = s
}

// SetMembers makes ms the members of the pool. Who stays keeps its load, ledger and blocks; who leaves is forgotten, and leases on it only wait for
// their release. A member starts healthy, and with nothing known.
func (p *Pool) SetMembers(ms []replica.Replica, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, changed := p.members, len(ms) != len(p.members)
	p.members = make([]*member, 0, len(ms))
	kept := make(map[replica.ID]*member, len(ms))
	for i := range ms {
		if kept[ms[i].ID] != nil {
			changed = true
			continue
		}
		m := p.byID[ms[i].ID]
		switch {
		case m == nil:
			m = &member{healthy: true, holder: p.takeHolder()}
			changed = true
		case m.slot != len(p.members) || !reflect.DeepEqual(*m.r, ms[i]):
			changed = true
		}
		if m.r == nil || changed {
			m.r = new(ms[i])
		}
		m.slot = len(p.members)
		kept[m.r.ID] = m
		p.members = append(p.members, m)
	}
	for _, m := range old {
		if kept[m.r.ID] == nil {
			p.drop(m)
			changed = true
		}
	}
	p.byID = kept
	if changed {
		p.view = p.newView()
		p.chooseChain()
	}
}

func (p *Pool) takeHolder() kv.Holder {
	if n := len(p.free); n > 0 {
		h := p.free[n-1]
		p.free = p.free[:n-1]
		return h
	}
	p.holders++
	return kv.Holder(p.holders - 1)
}

func (p *Pool) drop(m *member) {
	m.gone = true
	if ix := p.index.Load(); ix != nil {
		ix.Forget(m.holder)
	}
	p.free = append(p.free, m.holder)
}

func (p *Pool) newView() *View {
	v := &View{Replicas: make([]*replica.Replica, len(p.members))}
	for i, m := range p.members {
		v.Replicas[i] = m.r
	}
	return v
}

// chooseChain makes the index once a block size is known.
func (p *Pool) chooseChain() {
	if p.index.Load() != nil {
		return
	}
	for _, m := range p.members {
		if size := m.r.Facts.BlockSize; size > 0 {
			p.index.Store(p.newIndex(kv.NewChain("", size)))
			return
		}
	}
}

// Chain returns the chain by which the pool's index names blocks of model, and the adapter that its root takes. ok is false while no member serves
// the model with blocks of the indexed size.
//
// One chain serves all base models of the pool: an engine serves one base model only, so blocks of another never lie on a candidate.
func (p *Pool) Chain(model string) (chain kv.Chain, adapter string, ok bool) {
	ix := p.index.Load()
	if ix == nil {
		return kv.Chain{}, "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if size := m.r.Facts.BlockSize; (size == 0 || size == ix.chain.BlockSize()) && m.r.Serves(model) {
			return ix.chain, m.r.Adapter(model), true
		}
	}
	return kv.Chain{}, "", false
}

// Apply takes over block events of id; those of an unknown member are dropped. b is not kept.
func (p *Pool) Apply(id replica.ID, b *kv.Batch) kv.Applied {
	ix := p.index.Load()
	p.mu.Lock()
	m := p.byID[id]
	p.mu.Unlock()
	if ix == nil || m == nil {
		return kv.Applied{}
	}
	return ix.Apply(m.holder, b)
}

// Forget drops what is known of id's blocks.
func (p *Pool) Forget(id replica.ID) {
	ix := p.index.Load()
	p.mu.Lock()
	m := p.byID[id]
	p.mu.Unlock()
	if ix != nil && m != nil {
		ix.Forget(m.holder)
	}
}

// Expire drops from the index what was only guessed and not confirmed in time.
func (p *Pool) Expire(now time.Time) {
	if ix := p.index.Load(); ix != nil {
		ix.Expire(now)
	}
}

// IndexStats describes the block index.
func (p *Pool) IndexStats() kv.Stats {
	if ix := p.index.Load(); ix != nil {
		return ix.Stats()
	}
	return kv.Stats{}
}

// SetTrust says how far id's blocks in the index can be believed.
func (p *Pool) SetTrust(id replica.ID, t replica.Trust) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.byID[id]; m != nil {
		m.trust = t
	}
}

// SetHealthy says whether id may be chosen; reason is for people.
func (p *Pool) SetHealthy(id replica.ID, ok bool, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.byID[id]; m != nil {
		m.healthy, m.reason = ok, reason
	}
}

// Observe takes in a load report of id. Requests that the report counts beyond our own leases are others' work.
func (p *Pool) Observe(id replica.ID, l replica.Load, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.byID[id]
	if m == nil {
		return
	}
	if l.At.IsZero() {
		l.At = now
	}
	m.load.Add(l)
	m.fit.Ease(&p.fit, now)
	if m.load.UsageAt().Equal(l.At) {
		m.queue.settled()
	}
	switch {
	case l.Running >= 0 && l.Waiting >= 0:
		m.others.note(l.Running + l.Waiting - m.queue.count)
	case l.Waiting >= 0: // without the batch the report shows a lower bound
		m.others.note(max(m.others.count, l.Waiting-m.queue.count))
	}
}

// others is the number of requests there that are not ours. A report and our own count never are of quite the same moment, so that what only one report
// says may be a request of ours that has just ended: the smaller of the last two counts.
type others struct {
	count, last int
	heard       bool
}

func (o *others) note(seen int) {
	seen = max(0, seen)
	o.count = seen
	if o.heard {
		o.count = min(seen, o.last)
	}
	o.last, o.heard = seen, true
}

// believed returns the state of m's events, which an engine that publishes none need not be told.
func (m *member) believed() replica.Trust {
	if m.trust == replica.TrustUnknown && m.r.Facts.Events == (replica.EventSource{}) {
		return replica.Off
	}
	return m.trust
}

// avoided reports whether m is among ids.
func (m *member) avoided(ids []replica.ID) bool { return len(ids) > 0 && slices.Contains(ids, m.r.ID) }
