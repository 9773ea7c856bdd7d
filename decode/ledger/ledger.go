// Package ledger counts what this router has promised of the KV blocks of decode replicas. A [Lease] is one
// promise. A [Account] has all leases on one replica, their sums, and the engine's newest usage report. The
// [Ledger] has what the books of one pool share.
//
// The package knows no speeds and no expected lengths: durations and blocks come in as values. Nothing here
// is safe for concurrent use. The pool holds everything under its mutex.
//
// # States
//
// A lease goes down this list, and may leave out states:
//
//	Reserved   its prefill has not begun. Its blocks are asked for, and not yet taken from the free blocks.
//	   |       Invariant: it is in the heap of the Ledger.
//	   |  AdmitDue: its time has come; or Send
//	Admitted   its blocks are promised: no report of the engine can include them.
//	   |  Send
//	Sent       the engine has the request, and the newest report does not include it.
//	   |  Cover: a report with enough running sequences came at least reportDelay later
//	Reported   the newest report includes its blocks. Only its growth is added to them.
//	   |  End, from any state
//	Ended      it is in no list and in no sum.
//
// The KV of its prompt goes down a list of its own:
//
//	Pending    it is not on the replica: the replica computes it, or another replica sends it.
//	   |  MarkDue, if the answer is not streamed: the time for it has passed
//	Due        it should be there. The lease counts as answering.
//	   |  Arrive: it is there, or was due long ago, or will never be since the lease ends
//	Arrived    nothing waits for it.
//	   |  Answer
//	Answered   the first token came.
//
// # A new state
//
// Add the constant to [State] or [PromptState], at its place in the list. Say in [Sums.count] what a lease
// is worth in it, and in orders.count in which lists it stands. Both are called before and after each
// change, so that each sum is at any time what a walk over the leases would find. The test
// TestSumsAreThoseOfAWalk makes this walk.
package ledger

import (
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// Ledger is the part that the accounts of all replicas of a pool share. [New] makes a ledger.
type Ledger struct {
	reserved order.Heap[Lease] // reserved leases of all accounts, by the time of their admission
	booked   uint64            // leases so far
	epoch    time.Time         // when the first lease was booked, from which times in lists count
}

// New returns a ledger without leases.
func New() Ledger {
	return Ledger{reserved: order.NewHeap(
		func(a, b *Lease) bool { return a.admitAt < b.admitAt },
		func(l *Lease) *int { return &l.place },
	)}
}

// longest is far more nanoseconds than any expected time. The sum of two such times does not overflow.
const longest = 1 << 61

// At returns t as lists have it, in nanoseconds.
func (g *Ledger) At(t time.Time) int64 {
	return int64(min(max(t.Sub(g.epoch), -longest), longest))
}

// Reserved returns how many leases are reserved.
func (g *Ledger) Reserved() int { return g.reserved.Len() }

// Terms is how a lease begins.
type Terms struct {
	Growth int         // blocks that its answer may well add
	Prompt PromptState // [Arrived] if no other prompt waits for it
	Admit  time.Time   // when its prefill should begin. Until then it is reserved
	Send   time.Time   // when it should be sent to the replica, if its KV comes from another one
	Land   time.Time   // when its KV should be on the replica, if it comes from another one
}

// Enter enters l into b, as reserved or admitted.
func (g *Ledger) Enter(a *Account, l *Lease, t Terms, now time.Time) {
	if g.booked == 0 {
		g.epoch = now
	}
	g.booked++
	l.account, l.id = a, g.booked
	l.slot = len(a.leases)
	a.leases = append(a.leases, l)
	l.growth, l.prompt = t.Growth, t.Prompt
	l.admitAt = g.At(t.Admit)
	l.sendAt, l.landAt = g.At(t.Send), g.At(t.Land)
	l.state = Admitted
	if t.Admit.After(now) {
		l.state = Reserved
		g.reserved.Add(l)
	}
	a.count(l, 1)
}

// AdmitDue admits each reserved lease whose prefill should have begun.
func (g *Ledger) AdmitDue(now time.Time) {
	for {
		first := g.reserved.First()
		if first == nil || first.admitAt > g.At(now) {
			return
		}
		g.admit(first)
	}
}

// admit makes l admitted if it is reserved.
func (g *Ledger) admit(l *Lease) {
	if l.state != Reserved {
		return
	}
	g.reserved.Remove(l)
	l.account.move(l, Admitted)
}

// Send notes that the engine gets the request of l now. l has not been sent before.
func (g *Ledger) Send(l *Lease, now time.Time) {
	g.admit(l)
	l.account.move(l, Sent)
	l.sentAt = now
}

// End takes l, which has not ended, out of all lists and sums.
func (g *Ledger) End(l *Lease) {
	if l.state == Reserved {
		g.reserved.Remove(l)
	}
	a := l.account
	a.move(l, Ended)
	last := a.leases[len(a.leases)-1]
	a.leases[l.slot], last.slot = last, l.slot
	a.leases[len(a.leases)-1] = nil
	a.leases = a.leases[:len(a.leases)-1]
	if len(a.leases) == 0 {
		a.absent.due = 0
	}
}
