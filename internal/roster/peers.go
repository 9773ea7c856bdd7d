package roster

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Peers adds up what other routers report of the replicas that they share with this router. The zero Peers
// has no reports and takes none: see [NewPeers].
type Peers[M Entry, S any, P PeerLoad[S]] struct {
	members  *Members[M]
	sumOf    func(M) P
	byRouter map[string]*peerReport[S] // guarded by the lock of members
}

// peerReport is what one router reports. With many routers, a report comes every few milliseconds, and all
// reports are added up each time. So the place of each member in loads is looked up once per view.
type peerReport[S any] struct {
	loads []S
	at    []int // for each member by its slot the place in loads, -1 for none; as of view
	view  *View
	told  time.Time // when the router reported on all replicas
	// The router reports every change at once: without a report there was no change.
	atOnce bool
}

// PeerLoad is what a router reports of one replica: a pool's own type, by pointer.
type PeerLoad[S any] interface {
	*S
	About() (replica.ID, *replica.Report)
	Heard(now time.Time) // notes the time of the report, and clamps its numbers to possible values
	Add(*S)              // adds another that was heard
}

// NewPeers returns the reports of other routers about ms, none yet. sumOf returns the place for the sum of
// the reports on a member.
func NewPeers[M Entry, S any, P PeerLoad[S]](ms *Members[M], sumOf func(M) P) Peers[M, S, P] {
	return Peers[M, S, P]{members: ms, sumOf: sumOf, byRouter: map[string]*peerReport[S]{}}
}

// taker takes in an engine's load that another router asked for. The lock of the members is held.
type taker[M Entry] func(m M, l replica.Load, now time.Time)

// Merge replaces what router reported before by loads, as far as the loads can be true. With no loads, the
// router is forgotten. Merge keeps loads. It calls take for each engine's load among loads. Safe for
// concurrent use.
func (p *Peers[M, S, P]) Merge(router string, loads []S, now time.Time, take taker[M]) {
	p.members.Lock()
	defer p.members.Unlock()
	for i := range loads {
		P(&loads[i]).Heard(now)
	}
	if before := p.byRouter[router]; len(loads) == 0 {
		delete(p.byRouter, router)
	} else {
		p.byRouter[router] = &peerReport[S]{loads: loads, told: now, atOnce: before != nil && before.atOnce}
	}
	for _, m := range p.members.All {
		p.sum(m)
	}
	p.passOn(loads, now, take)
}

// Update is [Peers.Merge] for new reports of some replicas only: the router's older reports of other replicas
// stay. A router that has not reported all replicas before is unknown, and stays unknown. Safe for concurrent
// use.
func (p *Peers[M, S, P]) Update(router string, loads []S, now time.Time, take taker[M]) {
	p.members.Lock()
	defer p.members.Unlock()
	r := p.byRouter[router]
	if r == nil {
		return
	}
	r.atOnce = true
	p.lookUp(r)
	for i := range loads {
		P(&loads[i]).Heard(now)
		id, _ := P(&loads[i]).About()
		if m, known := p.members.Find(id); known && r.at[m.member().Slot] >= 0 {
			r.loads[r.at[m.member().Slot]] = loads[i]
			p.sum(m)
		}
	}
	p.passOn(loads, now, take)
}

// sum adds up what all routers report of m.
func (p *Peers[M, S, P]) sum(m M) {
	all := p.sumOf(m)
	*all = *new(S)
	for _, r := range p.byRouter {
		p.lookUp(r)
		if at := r.at[m.member().Slot]; at >= 0 {
			all.Add(&r.loads[at])
		}
	}
}

// passOn passes on the engines' reports among loads.
func (p *Peers[M, S, P]) passOn(loads []S, now time.Time, take taker[M]) {
	for i := range loads {
		id, report := P(&loads[i]).About()
		if m, ok := p.members.Find(id); ok && report != nil {
			take(m, report.Load(now), now)
		}
	}
}

// lookUp finds the place of each member in the loads of r, unless it has done so.
func (p *Peers[M, S, P]) lookUp(r *peerReport[S]) {
	if r.at != nil && r.view == p.members.View {
		return
	}
	r.view, r.at = p.members.View, slices.Repeat([]int{-1}, len(p.members.All))
	for i := range r.loads {
		id, _ := P(&r.loads[i]).About()
		if m, ok := p.members.Find(id); ok && r.at[m.member().Slot] < 0 { // the first of two reports counts
			r.at[m.member().Slot] = i
		}
	}
}

// Age returns the average age of the other routers' reports. In this time the other routers may have booked
// further requests. It returns 0 without other routers. The caller holds the lock of the members.
func (p *Peers[M, S, P]) Age(now time.Time) time.Duration {
	var sum time.Duration
	for _, r := range p.byRouter {
		if !r.atOnce {
			sum += max(0, now.Sub(r.told))
		}
	}
	return sum / time.Duration(max(1, len(p.byRouter)))
}

// The most that one router can report of one replica. A higher number is lowered to this limit, so that no
// sum over routers overflows.
const (
	mostCount = 1 << 30
	mostWork  = time.Hour
	mostRho   = 1000
	mostRate  = 1e6
)

// Count clamps a count that a peer reports to 0..2^30.
func Count(n int) int { return min(max(0, n), mostCount) }

// Work clamps a time that a peer reports to 0..1 h.
func Work(d time.Duration) time.Duration { return min(max(0, d), mostWork) }

// PerSecond clamps a rate that a peer reports to 0..1e6. NaN becomes 0.
func PerSecond(rate float64) float64 { return within(rate, mostRate) }

// Rho clamps a share of time that a peer reports to 0..1000. NaN becomes 0.
func Rho(rho float64) float64 { return within(rho, mostRho) }

func within(x, most float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, most)
}
