package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
)

// This file is what streams under way say of the speed of their replica. Else an answer tells at its end
// alone: on a replica that has become twenty times slower it comes twenty times later, and takes others
// to be believed.

// Progress is how far a stream has come.
type Progress = estimate.Progress

// ProgressEvery is how often it is worth telling of the progress of a stream.
const ProgressEvery = estimate.ProgressEvery

const (
	// Of other routers' local prefills only the share of time is known, and that late.
	peersPrefill = 0.02

	usedUp = 0.95 // of its blocks in use: then an engine takes them from who runs, and computes these again
)

// Progress tells how far l's answer has come. The time is that of the read. It is to be called when
// events were read, and need not be more often than each [ProgressEvery]. Safe for concurrent use. On nil
// it does nothing.
func (l *Lease) Progress(to Progress, now time.Time) {
	if l == nil || l.entry.Sequences > 1 { // of several answers in one stream some end before the others
		return
	}
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.State() == ledger.Ended || l.entry.PromptState() != ledger.Answered || l.entry.UnseenArrival > 0 {
		return
	}
	m, w := l.member, &l.stream.window
	done, disturbed := p.done(m, now), p.interferes(m, w.Since(), now)
	if s, told := m.learned.Read(w, to, done, disturbed, now); told {
		s.Load = m.mostDecoded(s.Load)
		p.learned.Learn(&m.learned, s)
	}
}

// mostDecoded returns the most that m's steps can have had in them, where they had so much on average.
func (m *member) mostDecoded(was estimate.Load) estimate.Load {
	most := max(float64(m.batch()), was.Sequences, 1)
	kv := int(max(m.reads(most), was.Tokens))
	return estimate.Load{Sequences: float64(int(most)), Tokens: float64(kv)}
}

// interferes reports whether something else than decode steps may have taken a replica's time since then:
// prompts that it computes for whomever, or again since it had run out of blocks.
func (p *Pool) interferes(m *member, since, now time.Time) bool {
	usage := m.load.Read(now, p.settings.LoadTTL).Usage // NaN where nobody knows
	return !m.prefillsNothing() || !m.turns.LeftAt().Before(since) || m.others.Count > 0 ||
		m.remote.Rho > peersPrefill || !(usage <= usedUp)
}
