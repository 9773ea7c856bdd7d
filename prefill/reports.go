package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// PeerLoad is what one router reports to others of its own work on a replica. They cannot see it otherwise:
// an engine counts requests, and does not say how long they are.
type PeerLoad struct {
	ID       replica.ID    `json:"id,omitzero"`
	Requests int           `json:"requests,omitzero"` // sent and not answered
	Tokens   int           `json:"tokens,omitzero"`   // uncached prompt tokens in Requests
	Work     time.Duration `json:"work_ns,omitzero"`  // until Requests are done, if no other router sends work
	// The earliest booked prompt among the requests.
	First roster.Running `json:"first,omitzero"`
	Fresh int            `json:"fresh,omitzero"` // prompt tokens that the report does not include
	// For the KV blocks that decode replicas still have to get.
	Sending time.Duration `json:"sending_ns,omitzero"`
	// Share of its time that the replica works for this router.
	Rho float64 `json:"rho,omitzero"`
	// Requests a second that this router sends there.
	Arrivals float64 `json:"arrivals,omitzero"`
	// The engine's newest that this router asked for by itself.
	Report *replica.Report `json:"report,omitzero"`
}

// Observe notes a load report of id. Requests in the report beyond our own leases count as others' work.
func (p *Pool) Observe(id replica.ID, l replica.Load, now time.Time) {
	p.about(id, func(m *member) {
		if l.At.IsZero() {
			l.At = now
		}
		if l.Source == replica.Metrics {
			m.asked = l
		}
		p.observe(m, l, now)
		m.Others.Weigh(l, m.known())
	})
}

func (p *Pool) observe(m *member, l replica.Load, now time.Time) {
	m.load.Add(l)
	if m.queue.count == 0 { // else a request measures it already, see Book
		m.learned.Fit.Ease(&p.learned.of(m).Prefills.SpeedFit, now)
	}
	if m.load.UsageAt().Equal(l.At) {
		m.queue.settled()
	}
	known := m.known()
	switch {
	case l.Running >= 0 && l.Waiting >= 0:
		m.Others.Note(l.Running + l.Waiting - known)
	case l.Waiting >= 0: // without the batch the report shows a lower bound
		m.Others.Note(max(m.Others.Count, l.Waiting-known))
	}
}

// PeerLoads returns what there is to report to other routers, for each member.
func (p *Pool) PeerLoads(now time.Time) []PeerLoad {
	p.members.Lock()
	defer p.members.Unlock()
	out := make([]PeerLoad, 0, len(p.members.All))
	for _, m := range p.members.All {
		s := PeerLoad{
			ID: m.R.ID, Requests: m.queue.count, Tokens: m.queue.tokens, Work: m.queue.wait(now),
			First: roster.RunningOf(m.queue.front(), now), Fresh: m.queue.fresh,
			Sending: m.outbox.Sending(),
			Rho:     m.meter.Rho(now), Arrivals: m.pace.Rate(now), Report: replica.ReportOf(m.asked, now),
		}
		out = append(out, s.plausible())
	}
	return out
}

// Changes grows when [Pool.PeerLoads] reports something new, apart from changes by the passing of time. It
// may also grow without news, and shrinks when members leave.
func (p *Pool) Changes() (n uint64) {
	p.members.Lock()
	defer p.members.Unlock()
	for _, m := range p.members.All {
		n += m.queue.changes
	}
	return n
}

// MergePeer replaces the earlier report of another router by loads. Without any loads the router is
// forgotten. The pool keeps loads.
func (p *Pool) MergePeer(router string, loads []PeerLoad, now time.Time) {
	p.peers.Merge(router, loads, now, p.observeNewer)
}

// UpdatePeer replaces what another router reported of some replicas by loads. It does nothing for a router
// without a report in [Pool.MergePeer]. loads is kept.
func (p *Pool) UpdatePeer(router string, loads []PeerLoad, now time.Time) {
	p.peers.Update(router, loads, now, p.observeNewer)
}

// observeNewer takes in an engine's load that another router asked for, if the load is newer than ours.
func (p *Pool) observeNewer(m *member, l replica.Load, now time.Time) {
	if l.At.After(m.load.UsageAt()) {
		p.observe(m, l, now)
	}
}

// About returns the replica of s, and its engine's report.
func (s *PeerLoad) About() (replica.ID, *replica.Report) { return s.ID, s.Report }

// plausible returns s with each number as far as a replica can have it.
func (s *PeerLoad) plausible() PeerLoad {
	return PeerLoad{
		ID: s.ID, Requests: roster.Count(s.Requests), Tokens: roster.Count(s.Tokens), Work: roster.Work(s.Work),
		First: s.First.Plausible(), Fresh: roster.Count(s.Fresh),
		Sending: roster.Work(s.Sending), Rho: roster.Rho(s.Rho), Arrivals: roster.PerSecond(s.Arrivals),
		Report: s.Report,
	}
}

// Plausible reports whether s can be true. An implausible report counts as far as it can be true.
func (s *PeerLoad) Plausible() bool {
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Changed reports whether s tells other bookings than o, an earlier report of the same replica. Numbers that
// change by themselves as time passes do not count.
func (s *PeerLoad) Changed(o *PeerLoad) bool {
	return s.Requests != o.Requests || s.Tokens != o.Tokens || s.Fresh != o.Fresh || s.Sending != o.Sending ||
		s.First.Work != o.First.Work
}

// Heard limits each number of s to values that a replica can have, and notes the time of the report.
func (s *PeerLoad) Heard(now time.Time) {
	*s = s.plausible()
	s.First.Heard(now)
}

// Add adds another router's load to s.
func (s *PeerLoad) Add(o *PeerLoad) {
	s.Requests += o.Requests
	s.Tokens += o.Tokens
	s.Work += o.Work
	s.First.Join(&o.First)
	s.Fresh += o.Fresh
	s.Sending += o.Sending
	s.Rho += o.Rho
	s.Arrivals += o.Arrivals
}
