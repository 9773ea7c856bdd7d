package decode

import "github.com/tandem-router/tandem/internal/replica"

// SetPosting says for how many seconds the replica id makes no step, for each token whose KV it reads from
// another one. Safe for concurrent use.
func (p *Pool) SetPosting(id replica.ID, perToken float64) {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		m.learned.SetPosting(perToken)
	}
}

// Posts notes that l's replica reads the blocks of so many tokens from now on. Safe for concurrent use.
func (l *Lease) Posts(tokens int) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	l.member.learned.Posts(tokens)
}

// Posting returns the seconds for which the replica id makes no step, for each token that it reads. Safe for
// concurrent use.
func (p *Pool) Posting(id replica.ID) float64 {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		return m.learned.Posting()
	}
	return 0
}
