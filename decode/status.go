package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// MemberStatus is what is known of one member, in KV blocks where nothing else is said. Unknown values are
// -1.
type MemberStatus struct {
	roster.Status
	Capacity  int `json:"capacity_blocks"`
	Free      int `json:"free_blocks"`     // may be promised
	Promised  int `json:"promised_blocks"` // by us, not in the engine's newest report
	Growth    int `json:"growth_blocks"`   // still expected of requests in the report
	Reserved  int `json:"soft_blocks"`     // asked for by requests in a prefill queue
	Returned  int `json:"returned_blocks"` // since the newest report
	Leases    int `json:"leases"`
	Sequences int `json:"sequences"` // ours, admitted or further
	Others    int `json:"other_requests"`
	replica.LoadStatus
	Guessed bool           `json:"guessed"`  // no fresh report: what is in use is assumed
	LocalMS float64        `json:"local_ms"` // until local prefills are done, predicted
	Output  int            `json:"expected_output_tokens"`
	Speed   estimate.Speed `json:"speed"`
	Samples int            `json:"speed_samples"`
	Remote  PeerLoad       `json:"elsewhere,omitzero"` // the sum of what other routers report

	// What was learned of how the engine was started: how many sequences it runs at a time, and whether it cuts
	// prompts as finely as pieces itself, so that they go there whole.
	MaxSequences int  `json:"max_num_seqs"`
	CutsPrompts  bool `json:"cuts_prompts"`
}

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
		g, a := &m.book, &p.standings[i].Account
		s := MemberStatus{
			Status: p.Roster.Status(&m.Member, counts), Capacity: -1, Free: -1,
			Promised: g.Promised, Growth: g.Growth, Reserved: g.Reserved(), Returned: g.Returned(),
			Leases: len(g.Leases()), Sequences: g.Sequences, Others: m.others.Count,
			LoadStatus: m.load.Status(now, ttl), Guessed: a.Guessed, LocalMS: m.queued(now).Seconds() * 1e3,
			Output: p.lengths.All().Rest(0, -1), Speed: p.speed(m), Samples: m.learned.Steps.Samples(),
			Remote: m.remote, MaxSequences: m.most.learned(), CutsPrompts: m.learned.CutsPrompts(now),
		}
		if a.Capacity > 0 {
			s.Capacity, s.Free = a.Capacity, max(a.Free, 0)
		}
		out = append(out, s)
	}
	return out
}
