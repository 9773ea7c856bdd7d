package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
)

// This file learns from running streams how fast their replica is. An answer teaches only at its end. On a
// replica that became twenty times slower, the end comes twenty times later, and one answer is not enough.

const (
	// Of other routers' local prefills only the share of time is known, and that late.
	peersPrefill = 0.02

	usedUp = 0.95 // share of blocks in use; above it an engine preempts running requests
)

// Progress records how far l's answer has come, at the time of the read. Call it after a read of events, not
// more often than each [ProgressEvery]. Safe for concurrent use. On nil it does nothing.
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
	done, disturbed := p.learned.done(m, now), p.interferes(m, w.Since(), now)
	if s, told := m.learned.Read(w, to, done, disturbed, now); told {
		s.Load = m.mostDecoded(s.Load)
		p.learned.speeds.Learn(&m.learned, s)
	}
}

// mostDecoded returns the largest load that m's steps can have had, with this load on average.
func (m *member) mostDecoded(was estimate.Load) estimate.Load {
	most := max(float64(m.batch()), was.Sequences, 1)
	kv := int(max(m.reads(most), was.Tokens))
	return estimate.Load{Sequences: float64(int(most)), Tokens: float64(kv)}
}

// interferes reports whether work other than decode steps may have taken a replica's time since then:
// prompts for any router, or prompts computed again after it ran out of blocks.
func (p *Pool) interferes(m *member, since, now time.Time) bool {
	usage := m.load.Read(now, p.settings.LoadTTL).Usage // NaN where nobody knows
	return !m.local.empty() || !m.local.turns.LeftAt().Before(since) || m.Others.Count > 0 ||
		m.remote.Rho > peersPrefill || !(usage <= usedUp)
}

// Progress is how far a stream has come.
type Progress = estimate.Progress

// ProgressEvery is the least interval between two useful reports of a stream's progress.
const ProgressEvery = estimate.ProgressEvery
