package roster

import (
	"time"

	"tandem/internal/replica"
)

// Hearsay is what each other router told last of the replicas that it uses too. The zero Hearsay has heard nothing. Not safe for concurrent use.
type Hearsay[S any] struct{ told map[string][]S }

// Share is what a router tells of one replica: a pool's own type, by pointer.
type Share[S any] interface {
	*S
	About() (replica.ID, *replica.Report)
	Add(*S)
}

// Hear replaces what router told; nothing, where it is silent. said is kept. Each member's sum, where elsewhere says it is, is made again, and report is called for
// each report of a member. The caller holds the lock.
func Hear[M Entry, S any, P Share[S]](ms *Members[M], h *Hearsay[S], router string, said []S, elsewhere func(M) P, report func(M, *replica.Report)) {
	h.set(router, said)
	for _, m := range ms.All {
		*elsewhere(m) = *new(S)
	}
	for _, all := range h.told {
		for i := range all {
			id, _ := P(&all[i]).About()
			if m, ok := ms.Find(id); ok {
				elsewhere(m).Add(&all[i])
			}
		}
	}
	for i := range said {
		id, told := P(&said[i]).About()
		if m, ok := ms.Find(id); ok && told != nil {
			report(m, told)
		}
	}
}

func (h *Hearsay[S]) set(router string, said []S) {
	if len(said) == 0 {
		delete(h.told, router)
		return
	}
	if h.told == nil {
		h.told = map[string][]S{}
	}
	h.told[router] = said
}

// What a router tells of one replica at most, and what it is taken to have told where it tells more: no sum of what several tell overflows then.
const (
	mostCount = 1 << 30
	mostWork  = time.Hour
	mostRho   = 1000
)

// Count returns n as far as it is plausible.
func Count(n int) int { return min(max(0, n), mostCount) }

// Work returns d as far as it is plausible.
func Work(d time.Duration) time.Duration { return min(max(0, d), mostWork) }

// Rho returns rho as far as it is plausible, 0 where it is no number.
func Rho(rho float64) float64 {
	if !(rho > 0) {
		return 0
	}
	return min(rho, mostRho)
}
