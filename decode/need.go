package decode

import "github.com/tandem-router/tandem/internal/estimate"

// need returns the blocks of the prompt, the blocks with the answer's likely growth at one time, and the
// limit of new tokens.
func (m *member) need(q *Query, expected *length) (prompt, whole, limit int) {
	limit = -1
	if q.MaxTokens > 0 {
		limit = q.MaxTokens
	}
	if n := m.R.Facts.MaxModelLen; n > 0 && (limit < 0 || n-q.Tokens < limit) {
		limit = max(0, n-q.Tokens)
	}
	size := m.cache().blockSize()
	prompt = blocksOf(q.Tokens, size)
	expected.within(limit)
	growth := blocksOf(m.cache().slots(q.Tokens+expected.room), size) - prompt
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
