package decode

import (
	"time"

	"tandem/internal/replica"
)

// Share is what one router tells others of its own bookings on a replica. They can see none of it: an engine counts requests, and says neither what they
// will take nor which are on their way.
type Share struct {
	ID        replica.ID      `json:"id"`
	Sequences int             `json:"sequences,omitzero"` // of hard leases
	Queued    int             `json:"queued,omitzero"`    // of soft ones
	Arriving  int             `json:"arriving,omitzero"`  // of Sequences, those whose blocks have not come
	Bound     int             `json:"bound,omitzero"`     // that the engine has got
	Promised  int             `json:"promised,omitzero"`  // blocks that the report does not include
	Growth    int             `json:"growth,omitzero"`    // blocks that requests in the report will still take
	Returned  int             `json:"returned,omitzero"`  // blocks that have come free since the report
	Held      int             `json:"held,omitzero"`      // blocks and growth of all hard leases
	Soft      int             `json:"soft,omitzero"`      // blocks of soft ones
	Moving    int             `json:"moving,omitzero"`    // tokens whose KV blocks are to come
	Work      time.Duration   `json:"work_ns,omitzero"`   // until local prefills are done, predicted
	Rho       float64         `json:"rho,omitzero"`       // share of its time that the replica prefills for this router
	Report    *replica.Report `json:"report,omitzero"`    // the engine's newest that this router asked for by itself
}

// Share tells of all members.
func (p *Pool) Share(now time.Time) []Share {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.turnHard(now)
	out := make([]Share, 0, len(p.Members))
	for _, m := range p.Members {
		g := &m.ledger
		out = append(out, Share{
			ID: m.R.ID, Sequences: g.sequences, Queued: g.queued, Arriving: g.arriving, Bound: g.bound, Promised: g.promised, Growth: g.growth,
			Returned: g.returned, Held: g.held, Soft: g.soft, Moving: g.moving, Work: g.warming.wait(now), Rho: m.meter.Rho(now),
			Report: replica.ReportOf(m.asked, now),
		})
	}
	return out
}

// Hear takes in what another router told now, instead of what it told before; nothing, where it is silent. said is kept.
func (p *Pool) Hear(router string, said []Share, now time.Time) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.hearsay.Set(router, said)
	for _, m := range p.Members {
		m.elsewhere = Share{}
	}
	for s := range p.hearsay.All() {
		if m, ok := p.Find(s.ID); ok {
			m.elsewhere.add(s)
		}
	}
	for i := range said {
		if m, ok := p.Find(said[i].ID); ok && said[i].Report != nil {
			if l := said[i].Report.Load(now); l.At.After(m.load.UsageAt()) {
				p.observe(m, l, now)
			}
		}
	}
}

func (s *Share) add(o *Share) {
	s.Sequences += max(0, o.Sequences)
	s.Queued += max(0, o.Queued)
	s.Arriving += max(0, o.Arriving)
	s.Bound += max(0, o.Bound)
	s.Promised += max(0, o.Promised)
	s.Growth += max(0, o.Growth)
	s.Returned += max(0, o.Returned)
	s.Held += max(0, o.Held)
	s.Soft += max(0, o.Soft)
	s.Moving += max(0, o.Moving)
	s.Work += max(0, o.Work)
	s.Rho += max(0, o.Rho)
}

// there is how many sequences are on m with hard leases of ours, of other routers' as told, or by its report alone.
func (m *member) there() int { return m.ledger.sequences + m.elsewhere.Sequences + m.ledger.others }
