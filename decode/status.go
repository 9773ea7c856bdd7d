package decode

import (
	"math"
	"time"

	"tandem/internal/roster"
	"tandem/scoring"
)

// MemberStatus is what is known of one member, in KV blocks where nothing else is said. Unknown values are -1.
type MemberStatus struct {
	roster.Status
	Capacity  int           `json:"capacity_blocks"`
	Free      int           `json:"free_blocks"`     // may be promised
	Promised  int           `json:"promised_blocks"` // by us, not in the engine's newest report
	Growth    int           `json:"growth_blocks"`   // still expected of requests in the report
	Soft      int           `json:"soft_blocks"`     // asked for by requests in a prefill queue
	Returned  int           `json:"returned_blocks"` // since the newest report
	Leases    int           `json:"leases"`
	Sequences int           `json:"sequences"` // ours, with a hard lease
	Others    int           `json:"other_requests"`
	Running   int           `json:"running"` // as the engine reports
	Waiting   int           `json:"waiting"`
	Usage     float64       `json:"usage"`
	LoadAge   float64       `json:"load_age_ms"`
	Guessed   bool          `json:"guessed"`  // no fresh report: what is in use is assumed
	LocalMS   float64       `json:"local_ms"` // until local prefills are done, predicted
	Output    int           `json:"expected_output_tokens"`
	Speed     scoring.Speed `json:"speed"`
	Samples   int           `json:"speed_samples"`
	Elsewhere Share         `json:"elsewhere,omitzero"` // what other routers told of their bookings, together
}

// Status describes every member, in order.
func (p *Pool) Status(now time.Time) []MemberStatus {
	counts := p.Counts()
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	ttl, mean := p.settings.LoadTTL, p.mean(now)
	out := make([]MemberStatus, 0, len(p.members.All))
	for _, m := range p.members.All {
		g, a := &m.ledger, p.account(m, now, mean.usage)
		s := MemberStatus{
			Status: p.Roster.Status(&m.Member, counts), Capacity: -1, Free: -1,
			Promised: g.promised, Growth: g.growth, Soft: g.soft, Returned: g.returned, Leases: len(g.leases), Sequences: g.sequences, Others: g.others,
			Running: m.load.Running(now, ttl), Waiting: m.load.Waiting(now, ttl), Usage: orMinus(m.load.Usage(now, ttl)),
			LoadAge: ageMS(m.load.Age(now)), Guessed: a.guessed, LocalMS: g.warming.wait(now).Seconds() * 1e3,
			Output: p.answers.Rest(0, -1), Speed: p.speed(m), Samples: m.steps.Samples(), Elsewhere: m.elsewhere,
		}
		if a.capacity > 0 {
			s.Capacity, s.Free = a.capacity, max(a.free, 0)
		}
		out = append(out, s)
	}
	return out
}

func orMinus(x float64) float64 {
	if math.IsNaN(x) {
		return -1
	}
	return x
}

func ageMS(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return d.Seconds() * 1e3
}
