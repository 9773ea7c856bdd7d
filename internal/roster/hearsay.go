package roster

import (
	"iter"
	"maps"
	"time"
)

// Hearsay is what each other router told last of the replicas that it uses too. The zero Hearsay has heard nothing. Not safe for concurrent use.
type Hearsay[S any] struct{ told map[string][]S }

// Set replaces what router told; nothing, where it is silent.
func (h *Hearsay[S]) Set(router string, said []S) {
	if len(said) == 0 {
		delete(h.told, router)
		return
	}
	if h.told == nil {
		h.told = map[string][]S{}
	}
	h.told[router] = said
}

// All walks all that holds, in no order.
func (h *Hearsay[S]) All() iter.Seq[*S] {
	return func(yield func(*S) bool) {
		for said := range maps.Values(h.told) {
			for i := range said {
				if !yield(&said[i]) {
					return
				}
			}
		}
	}
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
