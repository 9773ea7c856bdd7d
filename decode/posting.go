package decode

import "github.com/tandem-router/tandem/internal/replica"

// An engine posts the descriptors of a read on the thread that makes its steps: meanwhile all of its streams
// stand still. In a used cache each block and layer has a descriptor of its own, so that this takes as long
// for each block.

// SetPosting says for how many seconds the replica id makes no step, for each token whose KV it reads from
// another one. Safe for concurrent use.
func (p *Pool) SetPosting(id replica.ID, perToken float64) {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		m.measured.posting = perToken
	}
}

// Posts notes that l's replica reads the blocks of so many tokens from now on. Safe for concurrent use.
func (l *Lease) Posts(tokens int) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	m := l.member
	m.measured.posted += float64(tokens) * m.measured.posting
}

// Posting returns the seconds for which the replica id makes no step, for each token that it reads. Safe for
// concurrent use.
func (p *Pool) Posting(id replica.ID) float64 {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		return m.measured.posting
	}
	return 0
}
