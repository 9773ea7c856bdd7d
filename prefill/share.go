package prefill

import (
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
)

// Share is what one router tells others of its own work on a replica. They can see none of it: an engine counts requests, and does not say how long they are.
type Share struct {
	ID       replica.ID      `json:"id,omitzero"`
	Requests int             `json:"requests,omitzero"`   // sent and not answered
	Tokens   int             `json:"tokens,omitzero"`     // uncached ones of these
	Work     time.Duration   `json:"work_ns,omitzero"`    // until they are done, predicted
	Fresh    int             `json:"fresh,omitzero"`      // prompt tokens that the report does not include
	Sending  time.Duration   `json:"sending_ns,omitzero"` // for the KV blocks that decode replicas still have to get
	Rho      float64         `json:"rho,omitzero"`        // share of its time that the replica works for this router
	Report   *replica.Report `json:"report,omitzero"`     // the engine's newest that this router asked for by itself
}

// Share tells of all members.
func (p *Pool) Share(now time.Time) []Share {
	p.members.Lock()
	defer p.members.Unlock()
	out := make([]Share, 0, len(p.members.All))
	for _, m := range p.members.All {
		s := Share{
			ID: m.R.ID, Requests: m.queue.count, Tokens: m.queue.tokens, Work: m.queue.wait(now), Fresh: m.queue.fresh, Sending: m.outbox.Sending(),
			Rho: m.meter.Rho(now), Report: replica.ReportOf(m.asked, now),
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
		ID: s.ID, Requests: roster.Count(s.Requests), Tokens: roster.Count(s.Tokens), Work: roster.Work(s.Work), Fresh: roster.Count(s.Fresh),
		Sending: roster.Work(s.Sending), Rho: roster.Rho(s.Rho), Report: s.Report,
	}
}

// Plausible reports whether s can be true. One that is not counts as far as it can be.
func (s *Share) Plausible() bool {
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Add adds what is told to s, as far as it can be true.
func (s *Share) Add(told *Share) {
	o := told.plausible()
	s.Requests += o.Requests
	s.Tokens += o.Tokens
	s.Work += o.Work
	s.Fresh += o.Fresh
	s.Sending += o.Sending
	s.Rho += o.Rho
}
