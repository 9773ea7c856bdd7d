package waitline

import (
	"cmp"
	"iter"
	"math"
	"time"
)

// At sets the present time, on the clock of Came. Call it before other events; without a call the time of the
// last call holds. A clock that went back changes nothing.
func (q *Queue[R]) At(now time.Duration) { q.now = max(q.now, now) }

// mostAhead is how much work may be ahead of a request whose tenant has had more than its share. This is
// enough to keep a replica busy until the next request comes, and no more work delays the requests of other
// tenants. With 50 ms the fleet answers up to 8 % less. With 250 ms the slowest first tokens of the other
// tenants come half as late again (docs/decisions/0087).
const mostAhead = 100 * time.Millisecond

// Bound returns how much work of other requests may be ahead of a request that gets room now; 0 for any. A
// request with more work ahead waits in the queue, where other tenants can overtake it.
func (q *Queue[R]) Bound(o Order) time.Duration {
	if o.Tenant == 0 || !q.shares.ahead(o.Tenant, q.now) {
		return 0
	}
	return mostAhead
}

// Charge books the cost of a request that found room, in seconds of the whole fleet.
func (q *Queue[R]) Charge(o Order, cost float64) {
	if o.Tenant == 0 {
		return
	}
	least, several := math.Inf(1), false
	for in := range q.settlings() {
		several = several || len(in.groups) > 1
		for _, g := range in.groups {
			if g.rank == o.Rank {
				least = min(least, q.shares.start(g.tenant))
			}
		}
	}
	q.shares.charge(o.Tenant, cost/o.weight(), least, q.now)
	if several { // another waiter may be first now
		for _, l := range q.inOrder() {
			q.pass(&l.aside)
			q.pass(&l.line)
		}
	}
}

// Admit removes a waiter that found room, and books its cost. A waiter with the cost 0 leaves for another
// reason, without room.
func (q *Queue[R]) Admit(w *Waiter[R], cost float64) {
	if cost > 0 {
		if !w.out {
			w.in.Leaves()
		}
		q.Charge(w.order, cost)
	}
	q.Leave(w)
}

// Displaced reports whether a new request has taken the place of a waiter. Such a waiter is refused with
// [ErrFull].
func (q *Queue[R]) Displaced(w *Waiter[R]) bool { return w.out }

// displace makes room in a full queue for a new request. If the worst rank in the queue is worse than the
// rank of the new request, the newest request of the worst rank leaves. Within one rank, the tenant with the
// most requests for its weight loses its newest request. It does not lose one if it would then have fewer
// requests for its weight than the tenant of the new request.
func (q *Queue[R]) displace(n *Order) bool {
	if !q.others(n) {
		return false // always without classes and tenants: nothing to count
	}
	crowds := q.crowds()
	own, worst := crowds[crowd{n.Rank, n.Tenant}], (*count[R])(nil)
	for _, c := range crowds {
		if c.newest != nil && (worst == nil || c.worse(worst)) {
			worst = c
		}
	}
	if worst == nil || worst.newest.order.Rank < n.Rank {
		return false
	}
	if worst.newest.order.Rank == n.Rank {
		mine := 1.0
		if own != nil {
			mine += own.waiting
		}
		if worst == own || (worst.waiting-1)/worst.newest.order.weight() < mine/n.weight() {
			return false
		}
	}
	q.drop(worst.newest)
	return true
}

// others reports whether requests wait that a new request could displace.
func (q *Queue[R]) others(n *Order) bool {
	for in := range q.settlings() {
		for _, g := range in.groups {
			if g.rank > n.Rank || g.rank == n.Rank && g.tenant != n.Tenant {
				return true
			}
		}
	}
	return false
}

// crowd identifies the requests of one tenant and rank.
type crowd struct {
	rank   int
	tenant uint32
}

// count is the number of waiting requests of a crowd.
type count[R any] struct {
	waiting float64
	newest  *Waiter[R] // the newest that may be displaced; nil for none
}

// crowds counts the waiting requests.
func (q *Queue[R]) crowds() map[crowd]*count[R] {
	all := map[crowd]*count[R]{}
	for in := range q.settlings() {
		for _, g := range in.groups {
			c := all[crowd{g.rank, g.tenant}]
			if c == nil {
				c = &count[R]{}
				all[crowd{g.rank, g.tenant}] = c
			}
			c.waiting += float64(len(g.byTurn))
			for _, p := range g.byTurn {
				if w := p.Who; !w.stays && (c.newest == nil || w.number > c.newest.number) {
					c.newest = w
				}
			}
		}
	}
	return all
}

// settlings yields the lines of all places, in no order.
func (q *Queue[R]) settlings() iter.Seq[*settling[R]] {
	return func(yield func(*settling[R]) bool) {
		for _, l := range q.places {
			if !yield(&l.aside) || !yield(&l.line) {
				return
			}
		}
	}
}

// worse reports whether c loses a request before other does. Both have a request that may be displaced.
func (c *count[R]) worse(other *count[R]) bool {
	mine, others := &c.newest.order, &other.newest.order
	return cmp.Or(
		cmp.Compare(others.Rank, mine.Rank),
		cmp.Compare(other.waiting/others.weight(), c.waiting/mine.weight()),
		cmp.Compare(others.Tenant, mine.Tenant),
	) < 0
}

func (o *Order) weight() float64 {
	if o.Weight > 0 {
		return o.Weight
	}
	return 1
}

// drop removes a waiter because of a new request, and signals the caller.
func (q *Queue[R]) drop(w *Waiter[R]) {
	kept := w.tries || q.isFirst(w) // others from trying
	at := q.places[w.place]
	q.remove(w)
	w.out, w.tries = true, false
	q.signal(w, false)
	if kept {
		q.wake(at)
	}
	q.settle(w.in)
	q.forget(w.place)
}
