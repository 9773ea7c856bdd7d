// Package prefill owns the prefill pool: its block index and its queues of prompt tokens. It offers
// candidates and grants leases.
package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Options says how a Pool is made. The zero value works.
type Options = roster.Options

// Settings is what an operator may set about the pool. Every field must be set: see [Pool.Configure].
type Settings struct {
	Speed   estimate.Speed // of every member until enough was measured; without its prefill half the profile's
	LoadTTL time.Duration  // a load report older than this says nothing; above 0
	Samples int            // more than usual that a measured speed needs to be believed
}

// Pool is the prefill pool. Safe for concurrent use.
type Pool struct {
	*roster.Roster[*member]

	members *roster.Members[*member] // its lock guards all following fields

	settings Settings
	learned  lessons
	peers    roster.Peers[*member, PeerLoad, *PeerLoad]
	readings []replica.Reading // scratch of read
	taken    []int32           // scratch of Candidates
}

// Guess is what one router tells others of a prompt that it has sent.
type Guess = roster.Guess

// View is the list of members at one moment.
type View = roster.View

// member is one prefill replica. Guarded by the lock of the pool.
type member struct {
	roster.Member
	// What every plan asks of every member stands together.
	load    replica.Fused
	queue   queue
	outbox  replica.Outbox
	remote  PeerLoad // the sum over the reports of other routers
	meter   estimate.Utilization
	pace    estimate.ArrivalRate // of prompts
	learned estimate.Prompts
	lesson  *lesson // of its base model; nil before it is asked for

	counts Counts
	asked  replica.Load // newest report that we asked for ourselves
}

// Counts compares what we believed with what engines said.
type Counts struct {
	Predicted uint64 `json:"predicted_tokens"` // matched by the index, of answered requests
	Delivered uint64 `json:"delivered_tokens"` // cached by the engines' count, of the same requests
}

// New returns a pool without members, which believes no report before it has been configured.
func New(o Options) *Pool {
	p := new(Pool)
	p.Roster, p.members = roster.New(o, func() *member { return new(member) })
	p.peers = roster.NewPeers(p.members, func(m *member) *PeerLoad { return &m.remote })
	return p
}

// Configure makes s hold from now on. It panics where s is not said in full: the pool has no numbers of its
// own.
func (p *Pool) Configure(s Settings) {
	if s.LoadTTL <= 0 {
		panic("prefill: settings without LoadTTL")
	}
	p.members.Lock()
	defer p.members.Unlock()
	p.settings = s
	p.learned.Configure(s.Speed, s.Samples)
}

// Book reserves c's replica for the request that c was made for. It returns nil when the replica left the
// pool, fell ill or began to drain meanwhile.
func (p *Pool) Book(c *Candidate, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	m := c.member
	if !m.Takes() {
		return nil
	}
	l := &Lease{
		pool: p, member: m, prompt: c.Tokens, matched: c.Matched,
		pulled: max(0, c.Source.Tokens-c.Matched), named: c.query.named(),
		work: seconds(c.adds), at: now,
	}
	if c.Read > 0 {
		l.reads = &estimate.ReadBack{Tokens: c.Below.Tiers(), Rest: c.Wait + c.Warm, Alone: c.Waiting == 0}
	}
	m.learned.Fit.Recall(now)
	m.queue.push(l)
	m.Others.Ours(m.known())
	m.meter.Add(now, c.adds)
	m.pace.Add(now)
	p.learned.of(m).Also.booked(c.adds)
	return l
}

// Booked returns how many leases of id have not ended; 0 where it is no member. Safe for concurrent use.
func (p *Pool) Booked(id replica.ID) (leases int) {
	p.about(id, func(m *member) { leases = m.queue.count })
	return leases
}

// about calls do with the member id under the lock of the pool. It does nothing if there is no such member.
func (p *Pool) about(id replica.ID, do func(m *member)) {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		do(m)
	}
}

// known returns the requests that m has of ours and of the routers that we know.
func (m *member) known() int { return m.queue.count + m.remote.Requests }
