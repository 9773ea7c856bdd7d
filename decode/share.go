package decode

import (
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
)

// Share is what one router tells others of its own bookings on a replica. They can see none of it: an engine counts requests, and says neither what they
// will take nor which are on their way.
type Share struct {
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

// Share tells of all members.
func (p *Pool) Share(now time.Time) []Share {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	out := make([]Share, 0, len(p.members.All))
	for _, m := range p.members.All {
		g := &m.ledger
		s := Share{
			ID: m.R.ID, Sequences: g.sequences, Queued: g.queued, Arriving: g.arriving, Bound: g.bound, Promised: g.promised, Growth: g.growth,
			Returned: g.returned, Held: g.held, Soft: g.soft, SoftIn: m.softIn(now), Moving: g.moving, Work: g.warming.wait(now), Rho: m.meter.Rho(now),
			Report: replica.ReportOf(m.asked, now),
		}
		out = append(out, s.plausible())
	}
	return out
}

// Hear takes in what another router told now, instead of what it told before; nothing, where it is silent. said is kept.
func (p *Pool) Hear(router string, said []Share, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	roster.MergePeer(p.members, &p.hearsay, router, said, func(m *member) *Share { return &m.elsewhere }, func(m *member, r *replica.Report) {
		if l := r.Load(now); l.At.After(m.load.UsageAt()) {
			p.observe(m, l, now)
		}
	})
}

// About says of which replica s tells, and its report.
func (s *Share) About() (replica.ID, *replica.Report) { return s.ID, s.Report }

// plausible returns s with each number as far as a replica can have it.
func (s *Share) plausible() Share {
	return Share{
		ID: s.ID, Sequences: roster.Count(s.Sequences), Queued: roster.Count(s.Queued), Arriving: roster.Count(s.Arriving), Bound: roster.Count(s.Bound),
		Promised: roster.Count(s.Promised), Growth: roster.Count(s.Growth), Returned: roster.Count(s.Returned), Held: roster.Count(s.Held),
		Soft: roster.Count(s.Soft), SoftIn: roster.Work(s.SoftIn), Moving: roster.Work(s.Moving), Work: roster.Work(s.Work), Rho: roster.Rho(s.Rho), Report: s.Report,
	}
}

// Plausible reports whether s can be true. One that is not counts as far as it can be.
func (s *Share) Plausible() bool {
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Add adds what is told to s, as far as it can be true.
func (s *Share) Add(told *Share) {
	o := told.plausible()
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
	return m.ledger.sequences + m.elsewhere.Sequences + m.ledger.others.Count
}
