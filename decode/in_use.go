package decode

import (
	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Requests with the same beginning share its blocks in one engine: a new request needs room only for the
// blocks that no request there has in use. Otherwise forty requests with a common prefix of 18,000 tokens
// would fill their replica forty times over, and the prefix would be copied to all others.
//
// This holds for a request that begins there now. A request that is prefilled elsewhere first comes later,
// when the others may have ended: then it takes the blocks from the free ones (docs/decisions/0046).

// inUse returns how many blocks of q's prompt the requests on m have in use by its newest report, as far as
// the index has these blocks. It compares long prompts, so it is called only if room is short.
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
	return min(there, m.account.InReport(q.prompt, 0, p)) / m.cache().blockSize()
}
