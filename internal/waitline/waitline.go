// Package waitline orders the requests that wait for room on the same replicas.
//
// The turn of a request is its arrival plus its predicted wait for room. So a small request, such as one
// with a cached prefix, overtakes a large one, and no request is overtaken for ever.
//
// If the backlog takes longer than [late] to find room, that order would make every request wait too long
// for the whole time of the overload. Then the newest requests are first, each again later by its predicted
// wait: nearly all find room at once, and few wait in vain. As soon as the backlog shrinks, the old requests
// are first again (docs/decisions/0048).
//
// Requests of several classes or tenants stand in groups. The class of the smallest rank is first. Within a
// rank, requests whose goal can still be kept are before those whose goal is lost. Then comes the tenant
// that has had the least of its share, and then the request with the least time left. A request that has no
// goal is ordered within its group by its turn, as above. Of every [turns] requests that leave for room, one
// is the request that has waited for the longest time, so that nobody starves (docs/decisions/0081).
package waitline

import (
	"cmp"
	"slices"
	"time"
)

// late is a wait that is too long. It equals the time that a request may be expected to wait for room inside
// an engine (decode.shortWait).
const late = 4 * time.Second

// Of this many requests that find room, one is the request that has waited for the longest time.
const turns = 10

// Order says which tenant has sent a request, and how urgent the request is. Without classes and tenants,
// every request has the zero value.
type Order struct {
	Rank   int     // rank of its class: the smallest is first
	Tenant uint32  // 0: no shares are kept
	Weight float64 // weight of the tenant's share; 0 counts as 1
	// Latest moment at which room lets the request keep its goal, on the clock of Came; 0 for no goal.
	Due time.Duration
}

// Wait holds the facts of a waiting request that decide its turn.
type Wait struct {
	Came   time.Duration // time since a fixed moment, the same for the whole line
	Number uint64        // orders requests of the same time: the smaller is first
	Room   time.Duration // time from its newest try until there should be room; 0 before the first try
	// Between two similar requests that find room, on all replicas together; 0 is unknown.
	Every time.Duration
	Order Order
}

// Line is a line of waiting requests of type R. Its zero value is empty. It is not safe for concurrent use.
type Line[R any] struct {
	groups      []*group[R] // groups with waiting requests, by key
	waiting     int
	newestFirst bool
	known       int           // places whose Every is known
	every       time.Duration // sum of the known values of Every
	left        int           // requests that have left for room while there were several groups
}

// view holds the values besides the requests on which an order depends.
type view struct {
	now    time.Duration
	shares *Shares // may be nil
}

// Place is the place of one request in a line.
type Place[R any] struct {
	Who  R
	wait Wait
	in   *group[R]
}

// group has requests of one tenant and rank: either all requests with goals, or all requests without goals.
type group[R any] struct {
	rank   int
	tenant uint32
	due    bool
	// All places in both orders, because a new request may switch the order. With goals, byTurn is by due, and
	// newest is empty.
	byTurn, newest []*Place[R]
}

// Len returns the number of waiting requests.
func (l *Line[R]) Len() int { return l.waiting }

// NewestFirst reports whether the newest are first now, among requests without goals.
func (l *Line[R]) NewestFirst() bool { return l.newestFirst }

// First returns the first place; nil of an empty line.
func (l *Line[R]) First(v view) *Place[R] {
	switch {
	case l.waiting == 0:
		return nil
	case l.plain():
		return l.groups[0].places(l.newestFirst)[0]
	case l.left%turns == turns-1:
		return l.oldest()
	}
	first := l.groups[0]
	for _, g := range l.groups[1:] {
		if l.compare(v, g, first) < 0 {
			first = g
		}
	}
	p, _ := first.first(l, v)
	return p
}

// plain reports whether all requests are of one group without goals.
func (l *Line[R]) plain() bool { return len(l.groups) == 1 && !l.groups[0].due }

// oldest returns the request that has waited for the longest time.
func (l *Line[R]) oldest() (oldest *Place[R]) {
	for _, g := range l.groups {
		for _, p := range g.byTurn {
			if oldest == nil || cmp.Or(cmp.Compare(p.wait.Came, oldest.wait.Came),
				cmp.Compare(p.wait.Number, oldest.wait.Number)) < 0 {
				oldest = p
			}
		}
	}
	return oldest
}

// compare orders two groups by the first request of each group.
func (l *Line[R]) compare(v view, a, b *group[R]) int {
	p, lost := a.first(l, v)
	q, also := b.first(l, v)
	due := cmp.Compare(p.wait.Order.Due, q.wait.Order.Due)
	if lost {
		due = -due
	}
	return cmp.Or(
		cmp.Compare(a.rank, b.rank), order(lost, also),
		cmp.Compare(v.shares.start(a.tenant), v.shares.start(b.tenant)),
		order(!a.due, !b.due), due, cmp.Compare(p.wait.Number, q.wait.Number),
	)
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// first returns the first request of a group, and whether its goal is lost. With goals, the first request is
// the first whose goal can be kept, else the request whose goal was lost last.
func (g *group[R]) first(l *Line[R], v view) (p *Place[R], lost bool) {
	if !g.due {
		return g.places(l.newestFirst)[0], false
	}
	at, _ := slices.BinarySearchFunc(g.byTurn, v.now, func(p *Place[R], now time.Duration) int {
		return cmp.Compare(p.wait.Order.Due, now)
	})
	if at < len(g.byTurn) {
		return g.byTurn[at], false
	}
	return g.byTurn[at-1], true
}

// All returns all places. The groups stand in order, and so do the places of each group.
func (l *Line[R]) All(v view) []*Place[R] {
	groups := slices.SortedFunc(slices.Values(l.groups), func(a, b *group[R]) int { return l.compare(v, a, b) })
	var all []*Place[R]
	for _, g := range groups {
		all = append(all, g.places(l.newestFirst)...)
	}
	return all
}

// places returns all places of a group in the present order of tries.
func (g *group[R]) places(newestFirst bool) []*Place[R] {
	if newestFirst && !g.due {
		return g.newest
	}
	return g.byTurn
}

// Backlog returns the predicted time until all waiting requests have found room. A request that has not tried
// yet counts like an average one.
func (l *Line[R]) Backlog() time.Duration {
	if l.known == 0 {
		return 0
	}
	return l.every / time.Duration(l.known) * time.Duration(l.Len())
}

// Push inserts a request by its turn.
func (l *Line[R]) Push(who R, w Wait) *Place[R] {
	p := &Place[R]{Who: who, wait: w, in: l.groupOf(&w.Order)}
	g := p.in
	g.byTurn = slices.Insert(g.byTurn, before(g.byTurn, p, g.order()), p)
	if !g.due {
		g.newest = slices.Insert(g.newest, before(g.newest, p, newestFirst), p)
	}
	l.waiting++
	l.count(w, 1)
	return p
}

// groupOf returns the group of a request. It makes the group if there is none.
func (l *Line[R]) groupOf(o *Order) *group[R] {
	g := &group[R]{rank: o.Rank, tenant: o.Tenant, due: o.Due != 0}
	at, found := slices.BinarySearchFunc(l.groups, g, func(a, b *group[R]) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tenant, b.tenant), order(a.due, b.due))
	})
	if !found {
		l.groups = slices.Insert(l.groups, at, g)
	}
	return l.groups[at]
}

// order returns the order of byTurn.
func (g *group[R]) order() func(x, y *Wait) int {
	if g.due {
		return byDue
	}
	return byTurn
}

// Remove removes p from the line. p must be in the line.
func (l *Line[R]) Remove(p *Place[R]) {
	g := p.in
	at := before(g.byTurn, p, g.order())
	g.byTurn = slices.Delete(g.byTurn, at, at+1)
	if !g.due {
		at = before(g.newest, p, newestFirst)
		g.newest = slices.Delete(g.newest, at, at+1)
	}
	if len(g.byTurn) == 0 {
		l.groups = slices.DeleteFunc(l.groups, func(other *group[R]) bool { return other == g })
	}
	l.waiting--
	l.count(p.wait, -1)
}

// Leaves records that a request will leave the line for room.
func (l *Line[R]) Leaves() {
	if !l.plain() {
		l.left++
	}
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

func byDue(x, y *Wait) int {
	return cmp.Or(cmp.Compare(x.Order.Due, y.Order.Due), cmp.Compare(x.Number, y.Number))
}
