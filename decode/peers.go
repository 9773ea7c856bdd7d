package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

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
	p.members.Lock()
	defer p.members.Unlock()
	roster.MergePeer(p.members, &p.peers, router, loads, remoteOf, now, p.hearing(now))
}

// UpdatePeer takes in another router's report on some replicas, instead of its earlier report on the same
// replicas. It does nothing for a router without a report by [Pool.MergePeer]. loads is kept.
func (p *Pool) UpdatePeer(router string, loads []PeerLoad, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	roster.UpdatePeer(p.members, &p.peers, router, loads, remoteOf, now, p.hearing(now))
}

func remoteOf(m *member) *PeerLoad { return &m.remote }

// hearing takes in an engine's report that another router asked for, where it is newer than ours.
func (p *Pool) hearing(now time.Time) func(*member, *replica.Report) {
	return func(m *member, r *replica.Report) {
		if l := r.Load(now); l.At.After(m.load.UsageAt()) {
			p.observe(m, l, now)
		}
	}
}
