package waitline

import "time"

// credit is how much less than the clock a tenant can have had, in units of cost for a weight of 1. A tenant
// that asks for little may ask for this much at once without being ahead of its share. Without credit, two
// requests at once would make such a tenant wait as if it flooded the fleet. Any credit from 0.25 to 4 works
// (docs/decisions/0087).
const credit = 1

// lately is how long the use of a share counts as a sign that its tenant is active.
const lately = time.Minute

// Shares says how much of its share each tenant has had: start-time fair queueing over what requests cost.
// The clock of the shares is the cost that a tenant of weight 1 would have had if it had always asked. A
// tenant that asked for less is up to [credit] behind the clock; a tenant that asked for more is ahead. The
// zero value knows no tenants.
type Shares struct {
	clock  float64
	by     map[uint32]had // tenants that may have less than all their credit
	sweep  int            // size of by at which tenants with all their credit are removed
	newest charged
	others charged // the newest charge of a tenant other than newest.tenant
}

// had is the position of a tenant, and the time when it last got room.
type had struct {
	until float64
	at    time.Duration
}

// charged is when a tenant last got room.
type charged struct {
	tenant uint32
	at     time.Duration
}

// start returns the position of a tenant's next request on the clock of the shares.
func (s *Shares) start(tenant uint32) float64 {
	if s == nil {
		return 0
	}
	return max(s.clock-credit, s.by[tenant].until)
}

// charge books the cost of a request that got room, divided by the weight of its tenant. least is the
// smallest start of the waiting tenants.
func (s *Shares) charge(tenant uint32, cost, least float64, now time.Duration) {
	start := s.start(tenant)
	if s.by == nil {
		s.by = map[uint32]had{}
	}
	s.by[tenant] = had{start + cost, now}
	s.clock = max(s.clock, min(start, least))
	if tenant != s.newest.tenant {
		s.others = s.newest
	}
	s.newest = charged{tenant, now}
	s.forget(now)
}

// forget removes tenants that have all their credit, or were inactive for long. Most calls do nothing.
func (s *Shares) forget(now time.Duration) {
	const few = 64
	if len(s.by) < max(s.sweep, few) {
		return
	}
	for tenant, had := range s.by {
		if had.until <= s.clock-credit || now-had.at > lately {
			delete(s.by, tenant)
		}
	}
	s.sweep = 2 * len(s.by)
}

// ahead reports whether a tenant has had more than its share while another tenant is active too.
func (s *Shares) ahead(tenant uint32, now time.Duration) bool {
	other := s.newest
	if other.tenant == tenant {
		other = s.others
	}
	return other.tenant != 0 && now-other.at < lately && s.start(tenant) > s.clock
}
