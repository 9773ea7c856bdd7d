package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Observe takes in a load report of id. Headroom is counted from its usage until the next report.
func (p *Pool) Observe(id replica.ID, l replica.Load, now time.Time) {
	p.about(id, func(m *member) {
		if l.At.IsZero() {
			l.At = now
		}
		if l.Source == replica.Metrics {
			m.asked = l
		}
		if l.Drafts > 0 {
			m.drafted = l.Drafts
		}
		p.observe(m, l, now)
		m.Others.Weigh(l, m.known())
	})
}

func (p *Pool) observe(m *member, l replica.Load, now time.Time) {
	m.load.Add(l)
	p.learned.count(m, now)
	p.rooms.sequences.learn(m, &l, p.members.All, now)
	if len(m.account.Leases()) == 0 { // else a request tries already, see Book
		p.learned.of(m).Ease(&m.learned, now)
	}
	if l.Running >= 0 {
		m.Others.Note(l.Running + max(l.Waiting, 0) - m.known())
	}
	if !math.IsNaN(l.Usage) && m.load.UsageAt().Equal(l.At) && !m.account.TooSoon(&l) {
		p.ledger.AdmitDue(now)
		if running, ok := m.account.Running(&l); ok {
			p.reconcile(m, l, max(0, running-m.local.turns.Asked()))
			m.learned.Decodes(m.decodes())
		}
	}
}

// reconcile counts from the newest report of usage. running is how many sequences of this router the report
// includes.
func (p *Pool) reconcile(m *member, l replica.Load, running int) {
	b, at := &m.account, l.At
	b.CountFrom(m.load.Read(at, p.settings.LoadTTL).Usage, running, at)
	for e := range b.Overdue(at) {
		one := owner(e)
		p.learned.unseen(one)
		p.arriveUnseen(one, at)
	}
	uncovered := b.Cover(running, at)
	b.CountPreempted(&l, uncovered, m.Others.Count+m.remote.Sent, func(e *ledger.Lease) int {
		return p.own(owner(e), at)
	})
	p.expectGrowth(m, at)
}

// expectGrowth tells the account of m what its reported leases are expected to add, now that each has
// generated for longer.
func (p *Pool) expectGrowth(m *member, at time.Time) {
	step := p.learned.perToken(m)
	for _, e := range m.account.Leases() {
		if l := owner(e); e.State() == ledger.Reported {
			p.learned.underway(l, l.generated(step, at), at)
		}
	}
	p.learned.lengths.WorkOut()
	if !at.Before(m.atOnce.at.Add(ProgressEvery)) {
		m.atOnce = measureAtOnce(m, step, p.learned.lengths.All().Known(), at)
	}
	for _, e := range m.account.Leases() {
		if l := owner(e); e.State() == ledger.Reported {
			told := l.lengths.Told()
			m.account.Grow(e, told, m.atOnce.of(l.expectedGrowth(told)))
		}
	}
}

// PeerLoads returns what there is to report to other routers, for each member.
func (p *Pool) PeerLoads(now time.Time) []PeerLoad {
	p.members.Lock()
	defer p.members.Unlock()
	p.ledger.AdmitDue(now)
	out := make([]PeerLoad, 0, len(p.members.All))
	for _, m := range p.members.All {
		s, traffic := m.account.Load(p.ledger.At(now)), &m.learned.Traffic
		s.ID = m.R.ID
		s.Sent += m.local.turns.Asked()
		s.Work, s.First = m.local.queued(now), roster.RunningOf(m.local.front(), now)
		s.Pieces, s.PiecesWork = m.local.turns.Pieces()
		s.Rho, s.Arrivals = traffic.Prefills.Rho(now), traffic.Requests.Rate(now)
		s.InboundRate = traffic.Inbound.Rate(now)
		s.Report = replica.ReportOf(m.asked, now)
		out = append(out, s.Possible())
	}
	return out
}

// Changes grows with each change that [Pool.PeerLoads] would report, except changes by the passing of time.
// It may grow for nothing, and may fall when members leave.
func (p *Pool) Changes() (n uint64) {
	p.members.Lock()
	defer p.members.Unlock()
	for _, m := range p.members.All {
		n += m.account.Changes()
	}
	return n
}

// MergePeer takes in another router's report, instead of its earlier one. Without any loads the router is
// forgotten. loads is kept.
func (p *Pool) MergePeer(router string, loads []PeerLoad, now time.Time) {
	p.peers.Merge(router, loads, now, p.observeNewer)
}

// UpdatePeer takes in another router's report on some replicas, instead of its earlier report on the same
// replicas. It does nothing for a router without a report by [Pool.MergePeer]. loads is kept.
func (p *Pool) UpdatePeer(router string, loads []PeerLoad, now time.Time) {
	p.peers.Update(router, loads, now, p.observeNewer)
}

// observeNewer takes in an engine's load that another router asked for, if the load is newer than ours.
func (p *Pool) observeNewer(m *member, l replica.Load, now time.Time) {
	if l.At.After(m.load.UsageAt()) {
		p.observe(m, l, now)
	}
}
