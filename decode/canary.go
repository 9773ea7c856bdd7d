package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// BookCanary books the room of a request of the router's own, with a prompt and an answer of so many tokens,
// which is sent to id now. It has that room whether or not there is any, since the engine gets the request.
// Nothing is learned of it. It returns nil where id is not in the pool. Safe for concurrent use.
func (p *Pool) BookCanary(id replica.ID, prompt, answer int, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return nil
	}
	size := m.blockSize()
	blocks := blocksOf(prompt, size)
	l := &Lease{
		pool: p, member: m, growth: blocksOf(prompt+answer, size) - blocks,
		prompt:  promptKV{state: arrived}, // no other prompt waits for it
		lengths: p.expects(&Query{Tokens: prompt}, false),
		request: request{
			tokens: prompt, blocks: blocks, sequences: 1,
			limit: answer,
		},
	}
	p.add(l, now)
	p.send(l, now)
	return l
}
