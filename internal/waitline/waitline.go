// Package waitline orders the requests that wait for room on the same replicas.
//
// The turn of a request is its arrival plus its predicted wait for room. So a small request, such as one
// with a cached prefix, overtakes a large one, and no request is overtaken for ever.
//
// If the backlog takes longer than [late] to find room, that order would make every request wait too long
// for the whole time of the overload. Then the newest requests are first, each again later by its predicted
// wait: nearly all find room at once, and few wait in vain. As soon as the backlog shrinks, the old requests
// are first again (docs/decisions/0048).
package waitline

import (
	"cmp"
	"slices"
	"time"
)

// late is a wait that is too long. It equals the time that a request may be expected to wait for room inside
// an engine (decode.shortWait).
const late = 4 * time.Second

// Wait holds the facts of a waiting request that decide its turn.
type Wait struct {
	Came   time.Duration // since a moment that is the same for the whole line
	Number uint64        // orders requests of the same time: the smaller came first
	Room   time.Duration // from its newest try until there should be room; 0 before the first try
	// Between two similar requests that find room, on all replicas together; 0 is unknown.
	Every time.Duration
}

// Line is a line of waiting requests of type R. Its zero value is empty. It is not safe for concurrent use.
type Line[R any] struct {
	byTurn, newest []*Place[R] // all places in both orders: a newcomer may switch the order
	newestFirst    bool
	known          int           // places whose Every is known
	every          time.Duration // sum of the known values of Every
}

// Place is the place of one request in a line.
type Place[R any] struct {
	Who  R
	wait Wait
}

// Len returns the number of waiting requests.
func (l *Line[R]) Len() int { return len(l.byTurn) }

// NewestFirst reports whether the newest are first now.
func (l *Line[R]) NewestFirst() bool { return l.newestFirst }

// At returns the place behind so many others.
func (l *Line[R]) At(before int) *Place[R] { return l.places()[before] }

// All returns all places, in order.
func (l *Line[R]) All() []*Place[R] { return slices.Clone(l.places()) }

// places returns all places in the present order of tries.
func (l *Line[R]) places() []*Place[R] {
	if l.newestFirst {
		return l.newest
	}
	return l.byTurn
}

// Backlog returns the predicted time until all waiting requests have found room. A request that has not
// tried yet counts as an average one.
func (l *Line[R]) Backlog() time.Duration {
	if l.known == 0 {
		return 0
	}
	return l.every / time.Duration(l.known) * time.Duration(l.Len())
}

// Push inserts a request by its turn.
func (l *Line[R]) Push(who R, w Wait) *Place[R] {
	p := &Place[R]{Who: who, wait: w}
	l.byTurn = slices.Insert(l.byTurn, before(l.byTurn, p, byTurn), p)
	l.newest = slices.Insert(l.newest, before(l.newest, p, newestFirst), p)
	l.count(w, 1)
	return p
}

// Before returns how many places come before p, which may be in the line or not.
func (l *Line[R]) Before(p *Place[R]) int {
	if l.newestFirst {
		return before(l.newest, p, newestFirst)
	}
	return before(l.byTurn, p, byTurn)
}

// Remove takes p out of the line. p must be in the line.
func (l *Line[R]) Remove(p *Place[R]) {
	at := before(l.byTurn, p, byTurn)
	l.byTurn = slices.Delete(l.byTurn, at, at+1)
	at = before(l.newest, p, newestFirst)
	l.newest = slices.Delete(l.newest, at, at+1)
	l.count(p.wait, -1)
}

// count adds more requests like w, or removes them.
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
