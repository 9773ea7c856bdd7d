package decode

import "github.com/tandem-router/tandem/internal/estimate"

// decodes returns what m decodes now.
func (m *member) decodes() estimate.Load {
	sequences := float64(m.account.Answering + m.remote.Decoding() + m.Others.Count)
	return estimate.Load{Sequences: sequences, Tokens: m.reads(sequences)}
}

// reads returns how many tokens a step of so many sequences reads. Sequences of unknown clients, and
// sequences whose prompts are not computed yet, count as long as the running ones.
func (m *member) reads(sequences float64) float64 {
	g, e := &m.account, &m.remote
	if known := g.Answering + e.Known; known > 0 {
		return float64(g.Context+e.Context) / float64(known) * sequences
	}
	return float64(m.account.InUse(m.R.Facts.Blocks) * m.cache().blockSize())
}

// besidePrompt returns two durations on m. longer is how many seconds decoding adds to a step with a prompt
// in it. wait is how long a new request waits for the running step: half of a step on average.
func (m *member) besidePrompt(speed *estimate.Speed) (longer, wait float64) {
	load := m.decodes()
	if load.Sequences <= 0 {
		return 0, 0
	}
	step := speed.Step(int(load.Sequences), int(load.Tokens))
	return max(0, step-speed.D0), step / 2
}

// batch returns how many sequences m has, sent or on their way: of this router, of other routers by their
// reports, and of unknown clients by the engine's count.
func (m *member) batch() int {
	return m.account.Sequences + m.remote.Sequences + m.Others.Count
}

// Step returns the seconds that a decode step on l's replica takes now.
func (l *Lease) Step() float64 {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	speed := l.pool.learned.speed(l.member)
	return l.member.step(&speed)
}

// step returns the seconds of a decode step with all sequences of m, sent or on their way.
func (m *member) step(speed *estimate.Speed) float64 {
	return speed.Step(m.batch(), int(m.reads(float64(m.batch()))))
}

// decoding returns the number of sequences of m, sent or on their way, without the sequences whose prompts m
// still has to compute.
func (m *member) decoding() int {
	g, e := &m.account, &m.remote
	return g.Answering + g.Arriving + e.Decoding() + e.Arriving + m.Others.Count
}
