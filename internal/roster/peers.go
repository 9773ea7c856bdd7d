package roster

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// PeerReports is the newest bookings that each other router reported of the replicas it shares with this
// router. The zero PeerReports has no reports. Not safe for concurrent use.
type PeerReports[M Entry, S any] struct{ byRouter map[string]*peerReport[M, S] }

// peerReport is what one router reports. With many routers, a report comes every few milliseconds, and all
// reports are added up each time. So the place of each member in loads is looked up once per view.
type peerReport[M Entry, S any] struct {
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

// MergePeer replaces what router reported before by loads, as far as the loads can be true. With no loads,
// the router is forgotten. loads is kept. For each member, MergePeer adds up the reports of all routers, at
// the place that remote returns. Then it calls observe for each engine's report among loads. The caller
// holds the lock.
func MergePeer[M Entry, S any, P PeerLoad[S]](
	ms *Members[M], peers *PeerReports[M, S], router string, loads []S, remote func(M) P,
	now time.Time, observe func(M, *replica.Report),
) {
	for i := range loads {
		P(&loads[i]).Heard(now)
	}
	peers.set(router, loads, now)
	for _, m := range ms.All {
		sum(ms, peers, m, remote)
	}
	observeReports[M, S, P](ms, loads, observe)
}

// UpdatePeer is [MergePeer] for new reports of some replicas only: the router's older reports of other
// replicas stay. A router that has not reported all replicas before is unknown, and stays unknown.
func UpdatePeer[M Entry, S any, P PeerLoad[S]](
	ms *Members[M], peers *PeerReports[M, S], router string, loads []S, remote func(M) P,
	now time.Time, observe func(M, *replica.Report),
) {
	r := peers.byRouter[router]
	if r == nil {
		return
	}
	r.atOnce = true
	lookUp[M, S, P](r, ms)
	for i := range loads {
		P(&loads[i]).Heard(now)
		id, _ := P(&loads[i]).About()
		m, known := ms.Find(id)
		if !known {
			continue
		}
		if at := r.at[m.member().Slot]; at >= 0 {
			r.loads[at] = loads[i]
			sum(ms, peers, m, remote)
		}
	}
	observeReports[M, S, P](ms, loads, observe)
}

// sum adds up what all routers report of m.
func sum[M Entry, S any, P PeerLoad[S]](ms *Members[M], peers *PeerReports[M, S], m M, remote func(M) P) {
	all := remote(m)
	*all = *new(S)
	for _, r := range peers.byRouter {
		lookUp[M, S, P](r, ms)
		if at := r.at[m.member().Slot]; at >= 0 {
			all.Add(&r.loads[at])
		}
	}
}

// observeReports calls observe for each engine's report among loads.
func observeReports[M Entry, S any, P PeerLoad[S]](
	ms *Members[M], loads []S, observe func(M, *replica.Report),
) {
	for i := range loads {
		id, report := P(&loads[i]).About()
		if m, ok := ms.Find(id); ok && report != nil {
			observe(m, report)
		}
	}
}

// lookUp finds the place of each member in the loads of r, unless it has done so.
func lookUp[M Entry, S any, P PeerLoad[S]](r *peerReport[M, S], ms *Members[M]) {
	if r.at != nil && r.view == ms.View {
		return
	}
	r.view, r.at = ms.View, slices.Repeat([]int{-1}, len(ms.All))
	for i := range r.loads {
		id, _ := P(&r.loads[i]).About()
		if m, ok := ms.Find(id); ok && r.at[m.member().Slot] < 0 { // the first of two reports counts
			r.at[m.member().Slot] = i
		}
	}
}

// Age returns the average age of the other routers' reports. In this time the other routers may have booked
// further requests. It returns 0 without other routers.
func (p *PeerReports[M, S]) Age(now time.Time) time.Duration {
	var sum time.Duration
	for _, r := range p.byRouter {
		if !r.atOnce {
			sum += max(0, now.Sub(r.told))
		}
	}
	return sum / time.Duration(max(1, len(p.byRouter)))
}

func (p *PeerReports[M, S]) set(router string, loads []S, now time.Time) {
	if len(loads) == 0 {
		delete(p.byRouter, router)
		return
	}
	if p.byRouter == nil {
		p.byRouter = map[string]*peerReport[M, S]{}
	}
	before := p.byRouter[router]
	p.byRouter[router] = &peerReport[M, S]{loads: loads, told: now, atOnce: before != nil && before.atOnce}
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
