package decode

import "time"

// Status describes every member, in order.
func (p *Pool) Status(now time.Time) []MemberStatus {
	counts := p.Counts()
	p.members.Lock()
	defer p.members.Unlock()
	p.ledger.AdmitDue(now)
	p.read(now)
	ttl := p.settings.LoadTTL
	out := make([]MemberStatus, 0, len(p.members.All))
	for i, m := range p.members.All {
		g, a := &m.account, &p.standings[i].Headroom
		s := MemberStatus{
			Status: p.Roster.Status(&m.Member, counts), Capacity: -1, Free: -1,
			Promised: g.Promised, Growth: g.Growth, Reserved: g.Reserved(), Returned: g.Returned(),
			Leases: len(g.Leases()), Sequences: g.Sequences, Others: m.Others.Count,
			LoadStatus: m.load.Status(now, ttl), Guessed: a.Guessed, LocalMS: m.local.queued(now).Seconds() * 1e3,
			Output: p.lengths.All().Rest(0, -1), Speed: p.speed(m), Samples: m.learned.Steps.Samples(),
			Remote: m.remote, MaxSequences: m.most.Measured(), CutsPrompts: m.learned.CutsPrompts(now),
		}
		if a.Capacity > 0 {
			s.Capacity, s.Free = a.Capacity, max(a.Free, 0)
		}
		out = append(out, s)
	}
	return out
}
