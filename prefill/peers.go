package prefill

import (
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
)

// PeerLoad is what one router reports to others of its own work on a replica. They cannot see it otherwise:
// an engine counts requests, and does not say how long they are.
type PeerLoad struct {
	ID       replica.ID    `json:"id,omitzero"`
	Requests int           `json:"requests,omitzero"` // sent and not answered
	Tokens   int           `json:"tokens,omitzero"`   // uncached ones of these
	Work     time.Duration `json:"work_ns,omitzero"`  // until they are done, predicted
	Fresh    int           `json:"fresh,omitzero"`    // prompt tokens that the report does not include
	// For the KV blocks that decode replicas still have to get.
	Sending time.Duration `json:"sending_ns,omitzero"`
	// Share of its time that the replica works for this router.
	Rho float64 `json:"rho,omitzero"`
	// Requests a second that this router sends there.
	Arrivals float64 `json:"arrivals,omitzero"`
	// The engine's newest that this router asked for by itself.
	Report *replica.Report `json:"report,omitzero"`
}

// PeerLoads returns what there is to report to other routers, for each member.
func (p *Pool) PeerLoads(now time.Time) []PeerLoad {
	p.members.Lock()
	defer p.members.Unlock()
	out := make([]PeerLoad, 0, len(p.members.All))
	for _, m := range p.members.All {
		s := PeerLoad{
			ID: m.R.ID, Requests: m.queue.count, Tokens: m.queue.tokens, Work: m.queue.wait(now), Fresh: m.queue.fresh,
			Sending: m.outbox.Sending(),
			Rho:     m.meter.Rho(now), Arrivals: m.pace.Rate(now), Report: replica.ReportOf(m.asked, now),
		}
		out = append(out, s.plausible())
	}
	return out
}

// MergePeer takes in what another router reports now, in place of what it reported before. Without any loads
// the router is forgotten. loads is kept.
func (p *Pool) MergePeer(router string, loads []PeerLoad, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	remote := func(m *member) *PeerLoad { return &m.remote }
	roster.MergePeer(p.members, &p.peers, router, loads, remote, func(m *member, r *replica.Report) {
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
		ID: s.ID, Requests: roster.Count(s.Requests), Tokens: roster.Count(s.Tokens), Work: roster.Work(s.Work),
		Fresh:   roster.Count(s.Fresh),
		Sending: roster.Work(s.Sending), Rho: roster.Rho(s.Rho), Arrivals: roster.PerSecond(s.Arrivals),
		Report: s.Report,
	}
}

// Plausible reports whether s can be true. One that is not counts as far as it can be.
func (s *PeerLoad) Plausible() bool {
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Add adds another router's load to s, as far as it can be true.
func (s *PeerLoad) Add(load *PeerLoad) {
	o := load.plausible()
	s.Requests += o.Requests
	s.Tokens += o.Tokens
	s.Work += o.Work
	s.Fresh += o.Fresh
	s.Sending += o.Sending
	s.Rho += o.Rho
	s.Arrivals += o.Arrivals
}
