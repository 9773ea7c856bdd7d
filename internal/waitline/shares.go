package waitline

import "time"

// credit is how much less than the clock a tenant has had at most, in units of cost for a weight of 1. A
// tenant that asks for little may ask for so much at once, and is not ahead of its share. Without credit, two
// requests at once would make such a tenant wait as if the tenant flooded the fleet. Any credit from 0.25 to
// 4 does (docs/decisions/0087).
const credit = 1

// lately is how long the use of a share counts as a sign that its tenant is there.
const lately = time.Minute

// Shares says how much of its share each tenant has had: start-time fair queueing over what requests cost.
// The clock of the shares is the cost that a tenant of weight 1 would have had if it had always asked. A
// tenant that asked for less is up to [credit] behind the clock; a tenant that asked for more is ahead. The
// zero value knows no tenants.
type Shares struct {
	clock  float64
	by     map[uint32]had // of tenants that may have less than all their credit
	sweep  int            // size of by at which tenants with all their credit are forgotten
	newest charged
	others charged // the newest charge of a tenant other than newest.tenant
}

// had is how far a tenant is, and when it last got room.
type had struct {
	until float64
	at    time.Duration
}

// charged is when a tenant last got room.
type charged struct {
	tenant uint32
	at     time.Duration
}

// start returns where the next request of a tenant stands on the clock of the shares.
func (s *Shares) start(tenant uint32) float64 {
	if s == nil {
		return 0
	}
	return max(s.clock-credit, s.by[tenant].until)
}

// charge books what a request that got room costs, divided by the weight of its tenant. least is the smallest
// start of the tenants that wait.
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

// forget forgets tenants that have all their credit, or have long been away. Most calls do nothing.
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

// ahead reports whether a tenant has had more than its share while another tenant asks too.
func (s *Shares) ahead(tenant uint32, now time.Duration) bool {
	other := s.newest
	if other.tenant == tenant {
		other = s.others
	}
	return other.tenant != 0 && now-other.at < lately && s.start(tenant) > s.clock
}
