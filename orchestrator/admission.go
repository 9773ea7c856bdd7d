package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/waitline"
)

// admission is the queue of requests for which no decode replica has room now. [waitline.Queue] decides which
// requests try again, and when. Here each request has a goroutine. The goroutine waits until the queue lets
// the request try, until its patience is over, or until its client leaves. A place is the set of replicas
// that could serve a request. The queue is bounded. A full queue refuses new requests at once with
// errQueueFull, unless they have been admitted before.
//
// Safe for concurrent use.
type admission struct {
	mu    sync.Mutex // guards the following
	queue waitline.Queue[*waiter]
	began time.Time // when the first request arrived
}

// newAdmission returns an empty queue in which limit requests may wait.
func newAdmission(limit int) *admission {
	return &admission{queue: waitline.Queue[*waiter]{Limit: limit}}
}

// entry describes a request that comes to the queue. The request's own goroutine calls the functions, never
// while the queue is locked.
type entry struct {
	patience time.Duration
	claim    // class and share; zero: the same for all requests
	// Reports whether the request was admitted before, whole or in part. Such a request is let in while the
	// router drains, and when the queue is full, because the queue's limit is for newcomers. nil: not admitted
	// before.
	running func() bool
	place   func() uint64        // the replicas that could serve the request, as a number; nil: 0
	more    func() time.Duration // additional patience, asked when patience is over; nil: none
	try     func() outcome
}

// claim says how urgent a request is, and whose share of the fleet it takes.
type claim struct {
	order waitline.Order // without Due
	due   time.Time      // latest moment at which room lets the request keep its goal; zero: no goal
}

// outcome is the result of a try.
type outcome struct {
	verdict verdict
	room    time.Duration // if the request waits: time until there should be room
	every   time.Duration // time between two similar requests that find room; 0: unknown
	work    time.Duration // time from finding room to the first token; 0: unknown
	cost    float64       // cost of the booking; 0: no booking
}

func (o outcome) found() waitline.Found {
	if o.verdict == waitsAside {
		return waitline.Found{Aside: true}
	}
	return waitline.Found{Room: o.room, Every: o.every, Work: o.work}
}

type verdict uint8

const (
	waitsInLine verdict = iota // there is no room now
	waitsAside                 // no room while replicas are in use
	goesOn                     // the request has a plan, or fails for another reason than room
)

// waiter is one queued request. turn has room for one signal, so that a wake-up between two tries is not
// lost.
type waiter struct {
	entry
	turn chan struct{}
}

var (
	errQueueFull = waitline.ErrFull
	errDraining  = waitline.ErrClosed
	errQueueTime = errors.New("no decode replica had room within the queue deadline")
)

// do applies an event to the queue, and signals the requests that may try afterwards.
func (a *admission) do(event func(q *waitline.Queue[*waiter])) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue.Len() > 0 { // with an empty queue, as in nearly all cases, the time does not matter
		a.queue.At(a.onClock(time.Now()))
	}
	event(&a.queue)
	for w := a.queue.Next(); w != nil; w = a.queue.Next() {
		select {
		case w.Who.turn <- struct{}{}:
		default: // an earlier signal still waits for the request
		}
	}
}

// onClock converts a time to the queue's clock.
func (a *admission) onClock(now time.Time) time.Duration {
	if a.began.IsZero() {
		a.began = now
	}
	return now.Sub(a.began)
}

// bound returns how much work of other requests may be ahead of a request that gets room now; 0: any.
func (a *admission) bound(o waitline.Order) time.Duration {
	if o.Tenant == 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.At(a.onClock(time.Now()))
	return a.queue.Bound(o)
}

// takesShare books the cost of a request that found room at once.
func (a *admission) takesShare(e *entry, cost float64) {
	if e.order.Tenant == 0 || cost == 0 {
		return
	}
	a.do(func(q *waitline.Queue[*waiter]) {
		q.At(a.onClock(time.Now()))
		q.Charge(e.order, cost)
	})
}

// setLimit changes how many requests may wait. Requests that wait already remain.
func (a *admission) setLimit(n int) { a.do(func(q *waitline.Queue[*waiter]) { q.Limit = n }) }

// wake gives the first requests another try. It must be called whenever there may be room: a lease ended, a
// load report arrived, or a replica joined.
func (a *admission) wake() { a.do((*waitline.Queue[*waiter]).Wake) }

// moved lets each request change its place, because other replicas may serve it now. It must be called when
// replicas have joined or left, or serve other models.
func (a *admission) moved() { a.do((*waitline.Queue[*waiter]).Look) }

// close refuses all waiting and all new requests, except requests that were admitted before.
func (a *admission) close() { a.do((*waitline.Queue[*waiter]).Close) }

// length returns how many requests wait.
func (a *admission) length() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.Len()
}

// backlog returns the time until all requests should have found room, for the line in which this takes
// longest. Requests that stand aside do not count.
func (a *admission) backlog() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.Backlog()
}

// enter tries until the request is admitted, ctx ends, the queue refuses the request, or its patience ends.
// The first try is made at once, unless other requests wait in line for the same replicas.
func (a *admission) enter(ctx context.Context, e entry) error {
	var at uint64
	if a.length() > 0 { // an empty queue is usual, and needs no place
		at = e.where()
	}
	wait, seen, err := a.arrive(&e, at)
	if err != nil {
		return err
	}
	n := waitline.Newcomer[*waiter]{Place: at}
	if !wait {
		first := e.try()
		if first.verdict == goesOn {
			a.takesShare(&e, first.cost)
			return nil
		}
		n.Place, n.Found = e.where(), first.found()
		n.Seen = seen
	}
	n.Who = &waiter{entry: e, turn: make(chan struct{}, 1)}
	w, err := a.join(&n)
	if err != nil {
		return err
	}
	defer a.do(func(q *waitline.Queue[*waiter]) { q.Leave(w) })
	return a.wait(ctx, w)
}

// arrive reports whether others wait in line at the place of a new request, and the state of the queue.
func (a *admission) arrive(e *entry, at uint64) (wait bool, seen uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue.Closed() && !e.runs() {
		return false, 0, errDraining
	}
	wait, seen = a.queue.Enter(at)
	return wait, seen, nil
}

// join lets a new request wait.
func (a *admission) join(n *waitline.Newcomer[*waiter]) (w *waitline.Waiter[*waiter], err error) {
	n.Running, n.Order = n.Who.runs(), n.Who.order
	now := time.Now()
	a.do(func(q *waitline.Queue[*waiter]) {
		n.Came = a.onClock(now)
		q.At(n.Came)
		if due := n.Who.due; !due.IsZero() {
			n.Order.Due = max(1, due.Sub(a.began))
		}
		w, err = q.Join(n)
	})
	return w, err
}

func (e *entry) runs() bool { return e.running != nil && e.running() }

func (e *entry) where() uint64 {
	if e.place == nil {
		return 0
	}
	return e.place()
}

// wait runs a request while it is in the queue.
func (a *admission) wait(ctx context.Context, w *waitline.Waiter[*waiter]) error {
	e := &w.Who.entry
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			if e.more == nil || !waitsOn(timer, e.more()) {
				return errQueueTime
			}
		case <-w.Who.turn:
			a.move(w)
			tries, closed := a.begin(w)
			switch {
			case a.displaced(w):
				return errQueueFull
			case closed && !e.runs():
				return errDraining
			case !tries: // another one does
				continue
			}
			o := e.try()
			if o.verdict == goesOn {
				a.do(func(q *waitline.Queue[*waiter]) { q.Admit(w, o.cost) })
				return nil
			}
			at := e.where()
			a.do(func(q *waitline.Queue[*waiter]) { q.Again(w, o.found(), at) })
		}
	}
}

// waitsOn starts an ended timer again for d, and reports whether d is positive.
func waitsOn(timer *time.Timer, d time.Duration) bool {
	if d > 0 {
		timer.Reset(d)
	}
	return d > 0
}

// begin reports whether a request may try now, and whether the queue is closed.
func (a *admission) begin(w *waitline.Waiter[*waiter]) (tries, closed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.Begin(w), a.queue.Closed()
}

// displaced reports whether a new request took the place of this request, because the queue is full.
func (a *admission) displaced(w *waitline.Waiter[*waiter]) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue.Displaced(w)
}

// move takes a request to its present place, which may have changed.
func (a *admission) move(w *waitline.Waiter[*waiter]) {
	a.mu.Lock()
	moves := a.queue.Moves(w)
	a.mu.Unlock()
	if !moves {
		return
	}
	at := w.Who.where()
	a.do(func(q *waitline.Queue[*waiter]) { q.Move(w, at) })
}
