package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// BookCanary books the room of the router's own request, with a prompt and an answer of so many tokens,
// which is sent to id now. It always gets a lease, because the engine gets the request in any case. The pool
// learns nothing from it. It returns nil if id is not in the pool. Safe for concurrent use.
func (p *Pool) BookCanary(id replica.ID, prompt, answer int, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return nil
	}
	size := m.cache().blockSize()
	blocks := blocksOf(prompt, size)
	l := &Lease{pool: p, member: m, limit: answer, lengths: p.learned.expects(&Query{Tokens: prompt}, false)}
	l.entry.Of = l
	l.entry.Promise = ledger.Promise{Tokens: prompt, Blocks: blocks, Sequences: 1}
	growth := blocksOf(prompt+answer, size) - blocks
	p.enter(l, ledger.Terms{Growth: growth, Prompt: ledger.Arrived}, now) // no other prompt waits for its prompt
	p.send(l, now)
	return l
}
