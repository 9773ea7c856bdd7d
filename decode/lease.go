package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// Lease is room booked on a decode replica. Its holder ends it with Release or [Lease.Finish].
//
// All but pool is guarded by the lock of the pool.
type Lease struct {
	pool   *Pool
	member *member
	entry  ledger.Lease // in the member's account

	reads   *estimate.ReadBack // nil for a prompt with nothing to read back
	pieces  turns.Prompt       // how its prompt is sent, if the replica computes it
	from    *replica.Outbox    // of the replica that sends its KV, nil if none does
	place   time.Duration      // in that
	guessed bool               // the index counts its prompt as the replica's before its events say so

	lengths estimate.Expectation // of its answer's length
	limit   int                  // new tokens of each sequence, -1 none
	goal    time.Duration        // from token to token, 0 none
	stream  stream               // from when the engine has got it
}

// owner returns the lease that e is the entry of.
func owner(e *ledger.Lease) *Lease { return e.Of.(*Lease) }

// stream is the answer of a lease: its begin, its progress, and the state of the replica when the request was
// sent.
type stream struct {
	ahead   ahead        // what the request found in its engine
	foreign bool         // at the sending, blocks arrived at the replica that this router did not send
	roomy   bool         // at the sending, the replica had room for the request
	firstAt time.Time    // when the first token came; zero before
	read    turns.Stream // the answer among the streams of its replica, see [Lease.Streamed]

	window    estimate.Window
	begun     estimate.Done      // of its replica at the first token; when sent, if that cannot be observed
	meanwhile estimate.Meanwhile // until the answer came, if the first token cannot be observed
}

// ahead is the state in which a request finds its engine.
type ahead uint8

const (
	behindOthers    ahead = iota // requests wait for room or a turn, or prompts are computed first; or unknown
	besideTransfers              // blocks of others are arriving; no request waits
	behindNobody
)

// begin records the first token, or the whole answer if the first token cannot be observed. It returns the
// time since the request was sent, 0 if the first token cannot be observed.
func (l *Lease) begin(now time.Time) time.Duration {
	l.stream.firstAt = now
	if l.entry.UnseenArrival > 0 {
		return 0
	}
	return now.Sub(l.entry.SentAt())
}

// began returns when the first token came, or should have come if it cannot be observed; zero before that.
func (l *Lease) began() time.Time {
	if sent := l.entry.SentAt(); l.stream.firstAt.IsZero() && l.entry.UnseenArrival > 0 && !sent.IsZero() {
		return sent.Add(l.entry.UnseenArrival)
	}
	return l.stream.firstAt
}

// step returns the mean seconds of a step, for an answer of so many tokens per sequence; 0 if unknown. The
// first token of an answer that is not streamed cannot be observed: such an answer counts only if nearly all
// of its time must have been decoding.
func (l *Lease) step(each int, decoding time.Duration) float64 {
	s, unseen := &l.stream, l.entry.UnseenArrival
	switch whole := s.firstAt.Sub(l.entry.SentAt()); {
	case each < estimate.MinSteps:
		return 0
	case unseen == 0:
		return decoding.Seconds() / float64(each-1)
	case !s.firstAt.IsZero() && s.ahead != behindOthers && whole > mostlySteps*unseen:
		return (whole - unseen).Seconds() / float64(each)
	}
	return 0
}

// mostlySteps is how many times longer than its time to the first token an answer must have taken to be a
// sample of its steps.
const mostlySteps = 5

// generated returns the tokens that each sequence of l should have by now, at so many seconds per token.
func (l *Lease) generated(perToken float64, now time.Time) int {
	began := l.began()
	if began.IsZero() || !now.After(began) {
		return 0
	}
	tokens := int(now.Sub(began).Seconds() / perToken)
	if l.limit >= 0 {
		tokens = min(tokens, l.limit)
	}
	return tokens
}

// expectedGrowth returns the blocks that l may add after each sequence has generated so many tokens.
func (l *Lease) expectedGrowth(generated int) int {
	left := -1
	if l.limit >= 0 {
		left = max(0, l.limit-generated)
	}
	rest := l.lengths.Room(generated, left)
	size := l.member.cache().blockSize()
	end := blocksOf(l.member.cache().slots(l.entry.Tokens+generated+rest), size)
	return l.entry.Sequences * (end - blocksOf(l.has(generated), size))
}

// has is the number of token slots of each sequence after so many generated tokens. Before the first token
// nothing is drafted.
func (l *Lease) has(generated int) int {
	if generated == 0 {
		return l.entry.Tokens
	}
	return l.member.cache().slots(l.entry.Tokens + generated)
}
