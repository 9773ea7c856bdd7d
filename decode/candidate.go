package decode

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// Candidates appends to dst the replicas that could decode q now, and returns the view for their slots. If
// excluded is not nil, it gets all other replicas.
func (p *Pool) Candidates(
	q *Query, now time.Time, dst []Candidate, excluded *[]Excluded,
) ([]Candidate, *View, Rejected) {
	p.members.Lock()
	defer p.members.Unlock()
	p.learned.speeds.Other = q.Prefills
	p.ledger.AdmitDue(now)
	var rejected Rejected
	s := p.survey(q, now)
	first := len(dst)
	serves := p.members.Serving(q.Model)
	dst = slices.Grow(dst, len(p.members.All))
	for i, m := range p.members.All {
		verdict := m.unfit(q, serves[i])
		if verdict == fit {
			dst = dst[:len(dst)+1]
			if p.offer(&dst[len(dst)-1], m, &s, &p.rooms.standings[i]) {
				continue
			}
			dst, verdict = dst[:len(dst)-1], noRoom
		}
		p.reject(m, verdict, &s, &p.rooms.standings[i].Headroom, &rejected, excluded)
	}
	if noneRunsSoon(dst[first:], q) {
		for i := range dst[first:] {
			c := &dst[first+i]
			p.reject(c.member, noRoom, &s, &p.rooms.standings[c.Slot].Headroom, &rejected, excluded)
		}
		dst = dst[:first]
	}
	p.expect(dst[first:], q, now)
	p.cutter.price(dst[first:], &s)
	fillFirst(dst[first:])
	p.compare(dst[first:], now)
	return dst, p.members.View, rejected
}

// noneRunsSoon reports whether every candidate runs its maximum of sequences for longer than a request
// should wait inside an engine. Then the request waits in the router, where any replica can take it. A
// single full replica is only more expensive: a request with its prefix cached there would be computed anew
// elsewhere, beside the streams of others.
func noneRunsSoon(cs []Candidate, q *Query) bool {
	for i := range cs {
		if cs[i].runSlot <= q.Ready+ledger.ShortWait {
			return false
		}
	}
	return true
}

// offer makes c the candidate m, and reports whether m has room for the request.
func (p *Pool) offer(c *Candidate, m *member, q *survey, s *standing) bool {
	*c = Candidate{member: m}
	c.prompt, c.Need, c.limit = m.need(q.Query, &q.answer)
	if s.Capacity > 0 && s.Left() < c.Need {
		inUse := p.inUse(m, q)
		c.prompt -= inUse
		c.Need -= inUse
	}
	c.runSlot = p.rooms.slotIn(m, &s.Headroom, q.Sequences)
	if !p.rooms.admits(m, &s.Headroom, c.Need, q.Ready, q.at) {
		return false
	}
	c.Crowded = !s.Fits(c.Need)
	p.gather(c, q, s, q.answer.rest)
	c.Saturated = q.Split && q.Local && p.rooms.saturated(c, &s.Headroom, q.Ready)
	return !c.Saturated || !c.Crowded
}
