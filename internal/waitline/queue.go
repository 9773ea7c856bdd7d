package waitline

import (
	"maps"
	"slices"
	"time"
)

// Queue decides which of the requests that wait for room try to find room, and when. Events go in: a request
// joins, has tried, moves or leaves; room may have come; the queue closes. The requests that may try now come
// out of [Queue.Next]. The caller makes the tries, on goroutines of its own: the queue has no clock, no
// goroutine and no lock. It is not safe for concurrent use.
//
// Requests wait at a place, which stands for the replicas that could serve them. Each place has its own
// [Line]. When room may have come, the first of a line tries. If it finds no room and its new turn is behind
// another one's, that one tries, each request once for the same room. A request that is too large for
// anything but a nearly empty replica stands aside: in a second line, whose head is tried first and which
// keeps no other request waiting. Else one request could keep all others out while all replicas empty.
type Queue[R any] struct {
	Limit int // how many requests may wait; further ones are refused

	now     time.Duration // time of the newest event, on the clock of Came
	shares  Shares        // of tenants
	places  map[uint64]*lines[R]
	waiting int
	joined  uint64 // so far
	wakes   uint64 // so far
	closed  bool
	ready   []*Waiter[R] // may try now, in this order
}

// lines are the two lines of one place. A place without a waiting request has no lines.
type lines[R any] struct {
	aside settling[R] // requests that stand aside, oldest first
	line  settling[R] // all others
}

// settling is a line, with the order that it had when it settled: newest first.
type settling[R any] struct {
	Line[*Waiter[R]]
	settled bool
}

// Waiter is one request in the queue.
type Waiter[R any] struct {
	Who R

	arrival
	place  uint64
	in     *settling[R]       // the line of its place
	stands *Place[*Waiter[R]] // where in that line
	tries  bool               // it may try
	seen   uint64             // newest wake that its newest try knew of, plus 1; 0: it has not tried
	found  Found              // by its newest try
	look   bool               // its place may have changed
	ready  bool               // Next has yet to return it
	left   bool               // the queue
	out    bool               // a newcomer has displaced the waiter
}

// Enter reports whether a new request has to wait behind others of its place. If not, it tries at once. If it
// finds no room, it joins with seen, so that it does not miss room that came in between.
func (q *Queue[R]) Enter(place uint64) (wait bool, seen uint64) {
	l := q.places[place]
	return l != nil && l.line.Len() > 0, q.wakes + 1
}

// Join lets a new request wait, or refuses it with [ErrFull] or [ErrClosed].
func (q *Queue[R]) Join(n *Newcomer[R]) (*Waiter[R], error) {
	switch {
	case q.closed && !n.Running:
		return nil, ErrClosed
	case q.waiting >= q.Limit && !n.Running && !q.displace(&n.Order):
		return nil, ErrFull
	}
	q.joined++
	w := &Waiter[R]{Who: n.Who, arrival: arrival{n.Came, q.joined, n.Order, n.Running}, seen: n.Seen}
	if first := q.push(w, n.Found, n.Place); first {
		q.pass(w.in)
	}
	q.settle(w.in)
	return w, nil
}

// push gives a waiter its turn after a try, and reports whether it is the first of its line.
func (q *Queue[R]) push(w *Waiter[R], f Found, place uint64) (first bool) {
	l := q.places[place]
	if l == nil {
		l = &lines[R]{}
		if q.places == nil {
			q.places = map[uint64]*lines[R]{}
		}
		q.places[place] = l
	}
	q.waiting++
	w.place, w.found = place, f
	wait := Wait{Came: w.came, Number: w.number, Order: w.order}
	if wait.Order.Due != 0 {
		wait.Order.Due = max(1, wait.Order.Due-f.Work)
	}
	if w.in = &l.aside; !f.Aside {
		w.in = &l.line
		wait.Room, wait.Every = f.Room, f.Every
	}
	w.stands = w.in.Push(w, wait)
	return q.isFirst(w)
}

func (q *Queue[R]) isFirst(w *Waiter[R]) bool { return w.in.First(q.view()) == w.stands }

func (q *Queue[R]) view() view { return view{now: q.now, shares: &q.shares} }

// remove removes a waiter from its line.
func (q *Queue[R]) remove(w *Waiter[R]) {
	q.waiting--
	w.in.Remove(w.stands)
}

// forget removes the lines of a place where no request waits any more.
func (q *Queue[R]) forget(place uint64) {
	if l := q.places[place]; l.aside.Len() == 0 && l.line.Len() == 0 {
		delete(q.places, place)
	}
}

// Next returns a waiter that may try now, or that the caller has to check; nil if there is none. After every
// event, the caller calls Next until it returns nil.
func (q *Queue[R]) Next() *Waiter[R] {
	for len(q.ready) > 0 {
		w := q.ready[0]
		q.ready = q.ready[1:]
		if w.ready = false; !w.left {
			return w
		}
	}
	q.ready = nil
	return nil
}

// Moves reports whether a waiter that Next has returned has to call [Queue.Move] with its present place.
func (q *Queue[R]) Moves(w *Waiter[R]) bool {
	look := w.look
	w.look = false
	return look
}

// Begin reports whether a waiter may try now. The caller then makes one try.
func (q *Queue[R]) Begin(w *Waiter[R]) (tries bool) {
	if tries = w.tries; tries {
		w.tries, w.seen = false, q.wakes+1
	}
	return tries
}

// Again gives a waiter that found no room its new turn, at its present place.
func (q *Queue[R]) Again(w *Waiter[R], f Found, place uint64) {
	if w.out {
		return
	}
	was := q.places[w.place]
	if w.in == &was.aside {
		return
	}
	from := w.place
	q.remove(w)
	q.push(w, f, place)
	if w.tries || place != from {
		q.retry(w, was)
	}
	q.pass(&was.line)
	q.settle(&was.line)
	q.settle(w.in)
	q.forget(from)
}

// retry gives the first requests a new try in two cases. Room came while w tried, so that w may not have seen
// it, and w kept other requests from trying. Or w moved to a place where it has not learned of any room.
func (q *Queue[R]) retry(w *Waiter[R], was *lines[R]) {
	if w.tries {
		w.tries = false
		q.first(&was.line)
	}
	q.wake(q.places[w.place])
}

// Move takes a waiter to its present place, with the turn that it has. A try that it was given goes to the
// requests of its former place. At its new place it tries if it is the first there.
func (q *Queue[R]) Move(w *Waiter[R], place uint64) {
	if place == w.place || w.out {
		return
	}
	from, was := w.place, q.places[w.place]
	kept := w.tries || q.isFirst(w) // others from trying
	q.remove(w)
	if w.tries = false; kept {
		q.wake(was)
	}
	if q.push(w, w.found, place) {
		q.signal(w, true)
	}
	q.settle(&was.line)
	q.settle(w.in)
	q.forget(from)
}

// Leave removes a waiter: it was admitted, gave up or was refused. The first of each line try, since there
// may be more room now. A second call does nothing.
func (q *Queue[R]) Leave(w *Waiter[R]) {
	if w.left || w.out {
		w.left = true
		return
	}
	w.left = true
	q.remove(w)
	q.settle(w.in)
	q.forget(w.place)
	q.Wake()
}

// Wake lets the first requests of all lines try. Call it whenever there may be room.
func (q *Queue[R]) Wake() {
	q.wakes++
	for _, l := range q.inOrder() {
		q.wake(l)
	}
}

// inOrder returns the lines of all places in a fixed order, so that equal events lead to equal decisions.
func (q *Queue[R]) inOrder() []*lines[R] {
	if len(q.places) == 0 { // nearly always, at the end of a request: allocates nothing
		return nil
	}
	all := make([]*lines[R], 0, len(q.places))
	for _, place := range slices.Sorted(maps.Keys(q.places)) {
		all = append(all, q.places[place])
	}
	return all
}

// Look makes each waiter check its place: other replicas may serve it than at its last try.
func (q *Queue[R]) Look() {
	q.wakes++
	for _, w := range q.All() {
		w.look = true
		q.signal(w, false)
	}
}

// Close refuses new requests, and signals to each waiter that the queue is closed.
func (q *Queue[R]) Close() {
	q.closed = true
	for _, w := range q.All() {
		q.signal(w, true)
	}
}

// Closed reports whether the queue is closed.
func (q *Queue[R]) Closed() bool { return q.closed }

// Len returns how many requests wait.
func (q *Queue[R]) Len() int { return q.waiting }

// Backlog returns the time until all requests should have found room, for the line in which this takes
// longest. Requests that stand aside do not count.
func (q *Queue[R]) Backlog() (longest time.Duration) {
	for _, l := range q.places {
		longest = max(longest, l.line.Backlog())
	}
	return longest
}

// Heads returns, for each place where requests wait, up to n that are first in its line. Requests that stand
// aside are left out.
func (q *Queue[R]) Heads(n int) (heads [][]R) {
	for _, l := range q.inOrder() {
		var head []R
		all := l.line.All(q.view())
		for i := range min(n, l.line.Len()) {
			head = append(head, all[i].Who.Who)
		}
		heads = append(heads, head)
	}
	return heads
}

// All returns each waiter, in the order of its line.
func (q *Queue[R]) All() (all []*Waiter[R]) {
	for _, l := range q.inOrder() {
		for _, p := range slices.Concat(l.aside.All(q.view()), l.line.All(q.view())) {
			all = append(all, p.Who)
		}
	}
	return all
}

func (q *Queue[R]) wake(l *lines[R]) {
	q.first(&l.aside)
	q.first(&l.line)
}

// first lets the first request of a line try.
func (q *Queue[R]) first(in *settling[R]) {
	if p := in.First(q.view()); p != nil {
		q.signal(p.Who, true)
	}
}

// pass lets the first request of a line try if it has not tried since room came.
func (q *Queue[R]) pass(in *settling[R]) {
	if p := in.First(q.view()); p != nil && p.Who.seen != q.wakes+1 {
		q.signal(p.Who, true)
	}
}

// signal makes the caller check w, and lets w try if tries is true.
func (q *Queue[R]) signal(w *Waiter[R], tries bool) {
	if w.tries = w.tries || tries; !w.ready {
		w.ready = true
		q.ready = append(q.ready, w)
	}
}

// settle lets the first request try if the order has changed: another may be first now.
func (q *Queue[R]) settle(in *settling[R]) {
	if newest := in.NewestFirst(); newest != in.settled {
		in.settled = newest
		q.first(in)
	}
}
