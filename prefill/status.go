package prefill

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// MemberStatus is the facts about one member. Unknown values are -1.
type MemberStatus struct {
	roster.Status
	Requests int     `json:"requests"`      // ours, sent and not answered
	Tokens   int     `json:"queued_tokens"` // uncached prompt tokens in Requests
	WaitMS   float64 `json:"wait_ms"`       // predicted time until Requests are done
	Others   int     `json:"other_requests"`
	replica.LoadStatus
	Rho     float64            `json:"rho"`
	Speed   estimate.Speed     `json:"speed"`
	Samples int                `json:"speed_samples"`
	Counts  Counts             `json:"match"`
	Reads   map[string]float64 `json:"read_token_seconds,omitempty"` // learned, by memory
	Remote  PeerLoad           `json:"elsewhere,omitzero"`           // the sum over the reports of other routers
}

// Status describes every member, in order.
func (p *Pool) Status(now time.Time) []MemberStatus {
	counts := p.Counts()
	p.members.Lock()
	defer p.members.Unlock()
	ttl := p.settings.LoadTTL
	out := make([]MemberStatus, 0, len(p.members.All))
	for _, m := range p.members.All {
		s := MemberStatus{
			Status:   p.Roster.Status(&m.Member, counts),
			Requests: m.queue.count, Tokens: m.queue.tokens, WaitMS: m.queue.wait(now).Seconds() * 1e3,
			Others:     m.Others.Count,
			LoadStatus: m.load.Status(now, ttl), Rho: m.meter.Rho(now), Speed: p.learned.speed(m),
			Samples: m.learned.Fit.Samples(),
			Counts:  m.counts, Remote: m.remote, Reads: kv.ByTier(m.learned.Measured()),
		}
		if s.Usage >= 0 {
			s.Usage = m.usage(s.Usage) // plus the prompts sent since the report
		}
		out = append(out, s)
	}
	return out
}

// SpeedsOf returns what was measured of id; false where id has too few samples.
func (p *Pool) SpeedsOf(id replica.ID) (s estimate.Speeds, known bool) {
	p.about(id, func(m *member) { s, known = m.learned.State() })
	return s, known
}

// RestoreSpeeds lets an unmeasured id begin with what an earlier process has measured.
func (p *Pool) RestoreSpeeds(id replica.ID, s estimate.Speeds, now time.Time) (taken bool) {
	p.about(id, func(m *member) { taken = p.learned.of(m).RestorePrompts(&m.learned, &s, now) })
	return taken
}

// Prefills returns how long prefills take on the members with model together, as measured; zero: not known.
func (p *Pool) Prefills(model string) estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.asked(p.members.All, p.members.Serving(model)).MeasuredPrefills()
}

// Slow says why the replica id is slow compared with its pool, "" where it is not. known is false if too
// little was measured. held says that the replica was slow at the last call.
func (p *Pool) Slow(id replica.ID, held bool) (cause string, known bool) {
	p.about(id, func(m *member) { cause, known = p.learned.slow(m, p.members.All, held) })
	return cause, known
}
