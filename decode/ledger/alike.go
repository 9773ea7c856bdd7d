package ledger

import (
	"cmp"
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
)

// alike is leases in the order of their prompts' keys. The leases that share most with a prompt stand beside
// it, so that a comparison with every lease is not needed. The zero value is empty.
type alike []*Lease

// change adds l, or takes it out, by sign: 1 or -1. A prompt without keys shares nothing.
func (a *alike) change(l *Lease, sign int) {
	if len(l.Named.Keys) == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(*a, l, (*Lease).compare)
	if sign > 0 {
		*a = slices.Insert(*a, at, l)
	} else {
		*a = slices.Delete(*a, at, at+1)
	}
}

// shared returns how many leading tokens of l's prompt another lease of a has in common with it, at least
// known.
func (a alike) shared(l *Lease, known int) int {
	at, found := slices.BinarySearchFunc(a, l, (*Lease).compare)
	next := at
	if found {
		next++
	}
	if at > 0 {
		known = l.Named.Common(&a[at-1].Named, known)
	}
	if next < len(a) {
		known = l.Named.Common(&a[next].Named, known)
	}
	return known
}

// compare orders leases by the keys of their prompts, prompts of text behind prompts of blocks.
func (l *Lease) compare(to *Lease) int {
	if text := l.Named.Chunk > 0; text != (to.Named.Chunk > 0) {
		if text {
			return 1
		}
		return -1
	}
	a, b := l.Named.Keys, to.Named.Keys
	if n := kv.Common(a, b); n < len(a) && n < len(b) {
		return cmp.Compare(a[n], b[n])
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(l.id, to.id))
}
