package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/roster"
)

// localPrefills is the leases whose prompts one replica is to compute itself and has not computed. They stand
// in the order of booking, which is that of the engine. Guarded by the lock of the pool.
//
// What is done leaves with its whole prediction, so that no error of one is carried on to the next.
type localPrefills struct {
	first, last *Lease
	done        time.Time     // when the newest of those that have left did so
	work        time.Duration // predicted of all
	ended       time.Time     // when the first of them, or a piece of one, was done last
}

// none reports whether there are none.
func (w *localPrefills) none() bool { return w.first == nil }

func (w *localPrefills) add(l *Lease, now time.Time) {
	l.prompt.booked = now
	if w.last == nil {
		w.first = l
	} else {
		w.last.prompt.next, l.prompt.prev = l, w.last
	}
	w.last = l
	w.work += l.prompt.predicted
	l.prompt.pieces.Due = l.due()
}

func (w *localPrefills) remove(l *Lease, now time.Time) {
	prev, next := l.prompt.prev, l.prompt.next
	if prev == nil {
		w.first, w.ended = next, now
	} else {
		prev.prompt.next = next
	}
	if next == nil {
		w.last = prev
	} else {
		next.prompt.prev = prev
	}
	l.prompt.prev, l.prompt.next = nil, nil
	w.work -= l.prompt.predicted
	w.done = now
}

// wait returns the predicted time until all are done, given that the first has run for a while.
func (w *localPrefills) wait(now time.Time) time.Duration {
	if w.none() {
		return 0
	}
	return w.work - w.front().Ran(now)
}

// front returns the first of them.
func (w *localPrefills) front() roster.Front {
	f := roster.Front{Ended: w.ended}
	if w.first != nil {
		first := &w.first.prompt
		f.Work, f.At = first.predicted, first.booked
	}
	return f
}

// doubtful reports whether m, which prefills nothing now, last did long ago.
func (m *member) doubtful(now time.Time) bool { return now.Sub(m.ledger.local.done) > doubtAfter }

// doubtAfter is how long what was learned of a replica is not doubted.
const doubtAfter = 10 * time.Second

// prefillsNothing reports whether m computes no prompt itself now, for any router.
func (m *member) prefillsNothing() bool {
	return m.ledger.local.none() && !m.prefillsForOthers()
}

// prefillsForOthers reports whether m computes a prompt for another router.
func (m *member) prefillsForOthers() bool {
	return m.remote.Work > 0 || m.remote.First.Any()
}

// localWait returns the predicted time until m has computed all prompts that it prefills itself, those of
// other routers included.
func (m *member) localWait(now time.Time) time.Duration {
	w := &m.ledger.local
	switch {
	case m.remote.Work > 0 || m.remote.First.Reported():
		return m.remote.First.Left(w.work, m.remote.Work, w.front(), now)
	case w.none(): // most are asked by most plans
		return 0
	}
	return w.wait(now)
}
