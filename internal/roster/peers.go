package roster

import (
	"time"

	"tandem/internal/replica"
)

// PeerReports is the newest bookings that each other router reported of the replicas which it shares with
// this one. The zero PeerReports has heard from nobody. Not safe for concurrent use.
type PeerReports[S any] struct{ byRouter map[string][]S }

// PeerLoad is what a router reports of one replica: a pool's own type, by pointer.
type PeerLoad[S any] interface {
	*S
	About() (replica.ID, *replica.Report)
	Add(*S)
}

// MergePeer replaces what router reported before by loads; without any the router is forgotten. loads is
// kept. It sums up anew, for each member, what all routers report of it, at the place that remote returns.
// Then it calls observe for each engine's report among loads. The caller holds the lock.
func MergePeer[M Entry, S any, P PeerLoad[S]](
	ms *Members[M], peers *PeerReports[S], router string, loads []S, remote func(M) P,
	observe func(M, *replica.Report),
) {
	peers.set(router, loads)
	for _, m := range ms.All {
		*remote(m) = *new(S)
	}
	for _, all := range peers.byRouter {
		for i := range all {
			id, _ := P(&all[i]).About()
			if m, ok := ms.Find(id); ok {
				remote(m).Add(&all[i])
			}
		}
	}
	for i := range loads {
		id, report := P(&loads[i]).About()
		if m, ok := ms.Find(id); ok && report != nil {
			observe(m, report)
		}
	}
}

func (p *PeerReports[S]) set(router string, loads []S) {
	if len(loads) == 0 {
		delete(p.byRouter, router)
		return
	}
	if p.byRouter == nil {
		p.byRouter = map[string][]S{}
	}
	p.byRouter[router] = loads
}

// The most that one router can report of one replica. More is taken for this, so that no sum over routers
// overflows.
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

// PerSecond clamps a rate that a peer reports to 0..1e6. What is no number is 0.
func PerSecond(rate float64) float64 {
	if !(rate > 0) {
		return 0
	}
	return min(rate, mostRate)
}

// Rho clamps a share of time that a peer reports to 0..1000. What is no number is 0.
func Rho(rho float64) float64 {
	if !(rho > 0) {
		return 0
	}
	return min(rho, mostRho)
}
