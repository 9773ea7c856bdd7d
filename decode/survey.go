package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
)

// survey is a query with what holds for all members. It makes the candidates.
//
// Long: each candidate is computed from all these values.
type survey struct {
	*Query
	learned *lessons
	lesson  *lesson // of the model
	rooms   *rooms
	cutter  *cutter

	now     time.Time
	at      int64 // now, as the ledger has it
	readyAt int64 // when the prompt can be there, as the ledger has it
	mean    means
	matches roster.Matches
	answer  length
	pool    estimate.Speed // by which all members decode, taken together
	slope   estimate.Speed // what more costs there
	unit    int            // tokens of a block of the index
	age     float64        // seconds since the reports of other routers
	prompt  *ledger.Lease  // the prompt in the form in which leases are compared; nil until it is needed
}

// need returns the blocks of the prompt on m, the blocks with the answer's likely growth at one time, and the
// limit of new tokens.
func (q *survey) need(m *member) (prompt, whole, limit int) {
	limit = -1
	if q.MaxTokens > 0 {
		limit = q.MaxTokens
	}
	if n := m.R.Facts.MaxModelLen; n > 0 && (limit < 0 || n-q.Tokens < limit) {
		limit = max(0, n-q.Tokens)
	}
	size := m.cache().blockSize()
	prompt = blocksOf(q.Tokens, size)
	q.answer.within(limit)
	growth := blocksOf(m.cache().slots(q.Tokens+q.answer.room), size) - prompt
	return prompt, prompt + m.atOnce.of(max(q.Sequences, 1)*growth), limit
}

// length is the expected length of one sequence, remembered for the newest limit: members hardly ever
// differ.
type length struct {
	lengths estimate.Expectation
	limit   int
	rest    int // expected tokens, for the price
	room    int // cautious tokens, for the reservation
	known   bool
}

// within works out the answer for a limit of new tokens.
func (a *length) within(limit int) {
	if !a.known || a.limit != limit {
		a.limit, a.known = limit, true
		a.rest, a.room = a.lengths.Rest(0, limit), a.lengths.Room(0, limit)
	}
}

// Requests with the same beginning share its blocks in one engine: a new request needs room only for the
// blocks that no request there has in use. Otherwise forty requests with a common prefix of 18,000 tokens
// would fill their replica forty times over, and the prefix would be copied to all others.
//
// This holds for a request that begins there now. A request that is prefilled elsewhere first comes later,
// when the others may have ended: then it takes the blocks from the free ones (docs/decisions/0046).

// inUse returns how many blocks of q's prompt the requests on m have in use by its newest report, as far as
// the index has these blocks. It compares long prompts, so it is called only if room is short.
func (q *survey) inUse(m *member) int {
	if q.Ready > 0 || q.Chunk > 0 || len(q.Keys) == 0 { // of text nobody knows where its blocks begin
		return 0
	}
	there := q.matches.Tokens(&m.Member)
	if there == 0 {
		return 0
	}
	if q.prompt == nil {
		q.prompt = &ledger.Lease{Promise: ledger.Promise{Named: q.named()}}
	}
	return min(there, m.account.InReport(q.prompt, 0)) / m.cache().blockSize()
}
