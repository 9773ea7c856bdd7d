package decode

import (
	"slices"
	"time"
)

// localPrefills is the leases whose prompts one replica is to compute itself and has not computed. They stand
// in the order of booking, which is that of the engine. Guarded by the lock of the pool.
//
// What is done leaves with its whole prediction, so that no error of one is carried on to the next.
type localPrefills struct {
	leases []*Lease
	done   time.Time     // when the newest of those that have left did so
	work   time.Duration // predicted of all
	since  time.Time     // when the first of them can have begun
}

func (w *localPrefills) add(l *Lease, now time.Time) {
	if len(w.leases) == 0 {
		w.since = now
	}
	w.leases = append(w.leases, l)
	w.work += l.prefill.predicted
}

func (w *localPrefills) remove(l *Lease, now time.Time) {
	at := slices.Index(w.leases, l)
	if at == 0 {
		w.since = now
	}
	w.leases = slices.Delete(w.leases, at, at+1)
	w.work -= l.prefill.predicted
	w.done = now
}

// wait returns the predicted time until all are done, given that the first has run for a while.
func (w *localPrefills) wait(now time.Time) time.Duration {
	if len(w.leases) == 0 {
		return 0
	}
	return w.work - min(w.leases[0].prefill.predicted, max(0, now.Sub(w.since)))
}

// doubtful reports whether m, which prefills nothing now, last did long ago.
func (m *member) doubtful(now time.Time) bool { return now.Sub(m.ledger.local.done) > doubtAfter }

// doubtAfter is how long what was learned of a replica is not doubted.
const doubtAfter = 10 * time.Second

// prefillsNothing reports whether m computes no prompt itself now, for any router.
func (m *member) prefillsNothing() bool {
	return len(m.ledger.local.leases) == 0 && m.remote.Work == 0
}

// localWait returns the predicted time until m has computed all prompts that it prefills itself, those of
// other routers included.
func (m *member) localWait(now time.Time) time.Duration {
	return m.ledger.local.wait(now) + m.remote.Work
}
