package roster

import (
	"iter"
	"maps"
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
