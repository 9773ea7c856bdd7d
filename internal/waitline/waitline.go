// Package waitline keeps requests that wait for room on the same replicas in the order in which they try.
//
// A request's turn is when it came, and later by as long as it should have to wait for its room: who takes
// little, as one whose prefix is in use somewhere, passes who takes much, and nobody is passed for ever.
//
// Where more waits than finds room within [late], that order would let everybody wait for too long, for as
// long as it lasts. The newest are first then, again later by as long as they should wait for room: nearly
// all find it at once, and few wait in vain. Those who have waited for long are first again as soon as less
// waits (docs/decisions/0048).
package waitline

import (
	"cmp"
	"slices"
	"time"
)

// late is a wait that is too long: as long as a request may be expected to wait inside an engine for room,
// too (decode.shortWait).
const late = 4 * time.Second

// Wait is what is known of one that waits.
type Wait struct {
	Came   time.Duration // since a moment that is the same for the whole line
	Number uint64        // of two that came at the same time the smaller one came first
	Room   time.Duration // from its newest try on until there should be room for it; 0 before the first
	// Between two requests like it that find room, on all replicas together; 0 is unknown.
	Every time.Duration
}

// Line is those who wait, R each. Its zero value is empty. It is not safe for concurrent use.
type Line[R any] struct {
	byTurn, newest []*Place[R] // all places, in either order: each newcomer may be the one that changes it
	newestFirst    bool
	known          int           // places whose Every is known
	every          time.Duration // the sum of those
}

// Place is that of one in a line.
type Place[R any] struct {
	Who  R
	wait Wait
}

// Len tells how many wait.
func (l *Line[R]) Len() int { return len(l.byTurn) }

// NewestFirst reports whether the newest are first now.
func (l *Line[R]) NewestFirst() bool { return l.newestFirst }

// At returns the place before which so many others come.
func (l *Line[R]) At(before int) *Place[R] { return l.places()[before] }

// All returns all places, in order.
func (l *Line[R]) All() []*Place[R] { return slices.Clone(l.places()) }

// places are those in the order in which they try.
func (l *Line[R]) places() []*Place[R] {
	if l.newestFirst {
		return l.newest
	}
	return l.byTurn
}

// Backlog returns how long it should take until all who wait have found room. Who has not tried yet is taken
// to need as much as the others.
func (l *Line[R]) Backlog() time.Duration {
	if l.known == 0 {
		return 0
	}
	return l.every / time.Duration(l.known) * time.Duration(l.Len())
}

// Push puts who where its turn is.
func (l *Line[R]) Push(who R, w Wait) *Place[R] {
	p := &Place[R]{Who: who, wait: w}
	l.byTurn = slices.Insert(l.byTurn, before(l.byTurn, p, byTurn), p)
	l.newest = slices.Insert(l.newest, before(l.newest, p, newestFirst), p)
	l.count(w, 1)
	return p
}

// Before returns how many come before p, which waits or would wait.
func (l *Line[R]) Before(p *Place[R]) int {
	if l.newestFirst {
		return before(l.newest, p, newestFirst)
	}
	return before(l.byTurn, p, byTurn)
}

// Remove takes p out, which waits.
func (l *Line[R]) Remove(p *Place[R]) {
	at := before(l.byTurn, p, byTurn)
	l.byTurn = slices.Delete(l.byTurn, at, at+1)
	at = before(l.newest, p, newestFirst)
	l.newest = slices.Delete(l.newest, at, at+1)
	l.count(p.wait, -1)
}

// count takes in that so many more wait.
func (l *Line[R]) count(w Wait, more int) {
	if w.Every > 0 {
		l.known += more
		l.every += time.Duration(more) * w.Every
	}
	l.newestFirst = l.Backlog() > late
}

// before returns how many places of an order come before p.
func before[R any](places []*Place[R], p *Place[R], order func(x, y *Wait) int) int {
	at, _ := slices.BinarySearchFunc(places, p, func(a, b *Place[R]) int { return order(&a.wait, &b.wait) })
	return at
}

func byTurn(x, y *Wait) int {
	return cmp.Or(cmp.Compare(x.Came+x.Room, y.Came+y.Room), cmp.Compare(x.Number, y.Number))
}

func newestFirst(x, y *Wait) int {
	return cmp.Or(cmp.Compare(x.Room-x.Came, y.Room-y.Came), cmp.Compare(y.Number, x.Number))
}
