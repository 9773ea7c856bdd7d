package decode

import (
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
)

// PeerLoad is what one router tells others of its own bookings on a replica. They can see none of it: an engine counts requests, and says neither what they
// will take nor which are on their way.
type PeerLoad struct {
	ID        replica.ID      `json:"id,omitzero"`
	Sequences int             `json:"sequences,omitzero"`  // of hard leases
	Queued    int             `json:"queued,omitzero"`     // of soft ones
	Arriving  int             `json:"arriving,omitzero"`   // of Sequences, those whose blocks have not come
	Bound     int             `json:"bound,omitzero"`      // that the engine has got
	Promised  int             `json:"promised,omitzero"`   // blocks that the report does not include
	Growth    int             `json:"growth,omitzero"`     // blocks that requests in the report will still take
	Returned  int             `json:"returned,omitzero"`   // blocks that have come free since the report
	Held      int             `json:"held,omitzero"`       // blocks and growth of all hard leases
	Soft      int             `json:"soft,omitzero"`       // blocks of soft ones
	SoftIn    time.Duration   `json:"soft_in_ns,omitzero"` // until those turn hard, on average
	Moving    time.Duration   `json:"moving_ns,omitzero"`  // for the KV blocks that are to come
	Work      time.Duration   `json:"work_ns,omitzero"`    // until local prefills are done, predicted
	Rho       float64         `json:"rho,omitzero"`        // share of its time that the replica prefills for this router
	Report    *replica.Report `json:"report,omitzero"`     // the engine's newest that this router asked for by itself
}

// PeerLoads returns what there is to report to other routers, for each member.
func (p *Pool) PeerLoads(now time.Time) []PeerLoad {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	out := make([]PeerLoad, 0, len(p.members.All))
	for _, m := range p.members.All {
		g := &m.ledger
		s := PeerLoad{
			ID: m.R.ID, Sequences: g.sequences, Queued: g.queued, Arriving: g.arriving, Bound: g.bound, Promised: g.promised, Growth: g.growth,
			Returned: g.returned, Held: g.held, Soft: g.soft, SoftIn: m.softIn(now), Moving: g.moving, Work: g.warming.wait(now), Rho: m.meter.Rho(now),
			Report: replica.ReportOf(m.asked, now),
		}
		out = append(out, s.plausible())
	}
	return out
}

// MergePeer takes in what another router reports now, in place of what it reported before; without any loads the router is forgotten. loads is kept.
func (p *Pool) MergePeer(router string, loads []PeerLoad, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	roster.MergePeer(p.members, &p.peers, router, loads, func(m *member) *PeerLoad { return &m.remote }, func(m *member, r *replica.Report) {
		if l := r.Load(now); l.At.After(m.load.UsageAt()) {
			p.observe(m, l, now)
		}
	})
}

// About says of which replica s tells, and its report.
func (s *PeerLoad) About() (replica.ID, *replica.Report) { return s.ID, s.Report }

// plausible returns s with each number as far as a replica can have it.
func (s *PeerLoad) plausible() PeerLoad {
	return PeerLoad{
		ID: s.ID, Sequences: roster.Count(s.Sequences), Queued: roster.Count(s.Queued), Arriving: roster.Count(s.Arriving), Bound: roster.Count(s.Bound),
		Promised: roster.Count(s.Promised), Growth: roster.Count(s.Growth), Returned: roster.Count(s.Returned), Held: roster.Count(s.Held),
		Soft: roster.Count(s.Soft), SoftIn: roster.Work(s.SoftIn), Moving: roster.Work(s.Moving), Work: roster.Work(s.Work), Rho: roster.Rho(s.Rho), Report: s.Report,
	}
}

// Plausible reports whether s can be true. One that is not counts as far as it can be.
func (s *PeerLoad) Plausible() bool {
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Add adds another router's load to s, as far as it can be true.
func (s *PeerLoad) Add(load *PeerLoad) {
	o := load.plausible()
	s.Sequences += o.Sequences
	s.Queued += o.Queued
	s.Arriving += o.Arriving
	s.Bound += o.Bound
	s.Promised += o.Promised
	s.Growth += o.Growth
	s.Returned += o.Returned
	s.Held += o.Held
	if o.Soft > 0 {
		s.SoftIn += time.Duration(float64(o.SoftIn-s.SoftIn) * float64(o.Soft) / float64(s.Soft+o.Soft))
		s.Soft += o.Soft
	}
	s.Moving += o.Moving
	s.Work += o.Work
	s.Rho += o.Rho
}

// there is how many sequences are on m with hard leases of ours, of other routers' as told, or by its report alone.
func (m *member) there() int {
	return m.ledger.sequences + m.remote.Sequences + m.ledger.others.Count
}
