package decode

import (
	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Requests that begin alike share the blocks of that in one engine: whoever comes takes no more of its room
// than what nobody there has in use. A prefix of 18,000 tokens that forty have in common would fill the
// replica that has it forty times otherwise, and be copied to all others.
//
// This holds for who begins there now. Whoever has a prompt computed first comes later, when those may have
// ended: then it takes these blocks out of what is free (docs/decisions/0046).

// inUse returns how many blocks of q's prompt requests on m have in use by its newest report, as far as its
// index says that they are there. They are looked for only where room is short: that compares long prompts.
func (p *Pool) inUse(m *member, q *survey) int {
	if q.Ready > 0 || q.Chunk > 0 || len(q.Keys) == 0 { // of text nobody knows where its blocks begin
		return 0
	}
	there := q.matches.Tokens(&m.Member)
	if there == 0 {
		return 0
	}
	if q.prompt == nil {
		q.prompt = &ledger.Lease{Promise: ledger.Promise{Named: roster.Prompt{Keys: q.Keys}}}
	}
	return min(there, m.book.InReport(q.prompt, 0, p)) / m.blockSize()
}
