package ledger

import (
	"time"

	"github.com/tandem-router/tandem/internal/roster"
)

// State is how far a lease has come: see the package comment.
type State uint8

// The states of a lease, in their order.
const (
	Reserved State = iota
	Admitted
	Sent
	Reported
	Ended
)

// PromptState is how far the KV of a lease's prompt has come: see the package comment.
type PromptState uint8

// The states of a prompt, in their order.
const (
	Pending PromptState = iota
	Due
	Arrived
	Answered
)

// Promise is the booking of a lease. It does not change.
type Promise struct {
	Named     roster.Prompt // the keys of its prompt
	Tokens    int           // of the prompt
	Blocks    int           // of the prompt, without blocks that other requests had in use at booking
	Matched   int           // tokens of the prompt that were believed to be there already
	Sequences int           // at least 1

	Local    bool          // the replica computes the prompt; else another replica sends its KV
	Transfer time.Duration // predicted for its KV, if another replica sends it

	// UnseenArrival is the time from the sending until the prompt should have arrived, if the answer is not
	// streamed, so that its first token is not seen; else 0.
	UnseenArrival time.Duration
}

// Lease is one promise of KV blocks on one replica. The zero Lease is in no account.
//
// Long: the promise is read wherever the lease is counted.
type Lease struct {
	Promise
	Of any // the pool's own lease, which has this entry

	account   *Account
	id        uint64 // counts up with each booking
	slot      int    // in the leases of the account
	place     int    // in the heap of the Ledger
	state     State
	prompt    PromptState
	growth    int       // blocks that the answer may well add
	generated int       // tokens of each sequence by the newest report
	admitAt   int64     // when its prefill should begin, on the scale of [Ledger.At]
	sendAt    int64     // when it should be sent, if its KV comes from another replica
	landAt    int64     // when its KV should be there, if it comes from another replica
	sentAt    time.Time // when the engine got the request, zero before that
}

// State returns how far l has come.
func (l *Lease) State() State { return l.state }

// PromptState returns how far the KV of l's prompt has come.
func (l *Lease) PromptState() PromptState { return l.prompt }

// Missing reports whether the KV of l's prompt is not known to be on the replica.
func (l *Lease) Missing() bool { return l.prompt < Arrived }

// AtEngine reports whether the engine has the request of l.
func (l *Lease) AtEngine() bool { return l.state == Sent || l.state == Reported }

// ID returns the number of l, which counts up with each booking.
func (l *Lease) ID() uint64 { return l.id }

// SentAt returns when the engine got the request of l, the zero time before that.
func (l *Lease) SentAt() time.Time { return l.sentAt }

// Growth returns the blocks that the answer of l may well add.
func (l *Lease) Growth() int { return l.growth }

// Whole returns the blocks that l takes, with its growth.
func (l *Lease) Whole() int { return l.Blocks + l.growth }

// unanswered reports whether the engine has the request of l and has not answered.
func (l *Lease) unanswered() bool { return l.AtEngine() && l.prompt != Answered }

// leaves returns when the KV of l should leave the replica that computes it. It is long ago if the engine
// was asked to get the KV.
func (l *Lease) leaves() int64 {
	if l.state >= Sent {
		return -longest
	}
	return l.sendAt
}

// mayBeReported reports whether a report of the given time may include l.
func (l *Lease) mayBeReported(at time.Time) bool {
	return l.state >= Sent && !l.sentAt.Add(reportDelay).After(at)
}

// isDue reports whether the prompt of an answer that is not streamed should have arrived by the given time.
func (l *Lease) isDue(at time.Time) bool {
	return l.UnseenArrival > 0 && !l.sentAt.Add(l.UnseenArrival).After(at)
}

// overdue reports whether the prompt of an answer that is not streamed should have arrived long ago: twice
// the predicted time has passed.
func (l *Lease) overdue(at time.Time) bool {
	return l.UnseenArrival > 0 && l.sentAt.Add(2*l.UnseenArrival).Before(at)
}
