package decode

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file answers what others ask of the pool: for status, for the state file, and for what they decide
// about a replica.

// Status describes every member, in order.
func (p *Pool) Status(now time.Time) []MemberStatus {
	counts := p.Counts()
	p.members.Lock()
	defer p.members.Unlock()
	p.ledger.AdmitDue(now)
	p.rooms.read(p.members.All, now)
	ttl := p.settings.LoadTTL
	out := make([]MemberStatus, 0, len(p.members.All))
	for i, m := range p.members.All {
		g, a := &m.account, &p.rooms.standings[i].Headroom
		s := MemberStatus{
			Status: p.Roster.Status(&m.Member, counts), Capacity: -1, Free: -1,
			Promised: g.Promised, Growth: g.Growth, Reserved: g.Reserved(), Returned: g.Returned(),
			Leases: len(g.Leases()), Sequences: g.Sequences, Others: m.Others.Count,
			LoadStatus: m.load.Status(now, ttl), Guessed: a.Guessed, LocalMS: m.local.queued(now).Seconds() * 1e3,
			Output: p.learned.lengths.All().Rest(0, -1), Speed: p.learned.speed(m), Samples: m.learned.Steps.Samples(),
			Remote: m.remote, MaxSequences: m.most.Measured(), CutsPrompts: m.learned.CutsPrompts(now),
			Reads: kv.ByTier(m.learned.Measured()),
		}
		if a.Capacity > 0 {
			s.Capacity, s.Free = a.Capacity, max(a.Free, 0)
		}
		out = append(out, s)
	}
	return out
}

// SequencesFull returns a sentence if the replica id ran its maximum of sequences within the last minute
// although its KV cache had room for more. It returns "" otherwise, or if the maximum is unknown.
func (p *Pool) SequencesFull(id replica.ID, now time.Time) (cause string) {
	p.about(id, func(m *member) {
		if used, full := m.most.Full(now); full {
			cause = fmt.Sprintf("it runs no more than %d at a time (--max-num-seqs), with %.0f %% of its KV cache "+
				"in use", m.most.Measured(), 100*used)
		}
	})
	return cause
}

// Slow says why the replica id is slow beside the others of its pool, "" if it is not. known is false
// without enough samples. held says that it was slow before.
func (p *Pool) Slow(id replica.ID, held bool) (cause string, known bool) {
	p.about(id, func(m *member) { cause, known = p.learned.slow(m, p.members.All, held) })
	return cause, known
}

// Lengths returns the observed lengths of all groups, the most recently used last.
func (p *Pool) Lengths() []estimate.GroupLengths {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.lengths.State()
}

// RestoreLengths gives groups without an answer so far the lengths that were saved before. believed (0..1) is
// the trust in the saved lengths. It returns the number of groups that got lengths.
func (p *Pool) RestoreLengths(all []estimate.GroupLengths, believed float64) (taken int) {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.lengths.Restore(all, believed)
}

// SpeedsOf returns what was measured of id; false where that is nothing.
func (p *Pool) SpeedsOf(id replica.ID) (s estimate.Speeds, known bool) {
	p.about(id, func(m *member) { s, known = m.learned.State() })
	return s, known
}

// RestoreSpeeds lets id, of which nothing was measured yet, begin with what was measured before. It reports
// whether anything was taken.
func (p *Pool) RestoreSpeeds(id replica.ID, s estimate.Speeds, now time.Time) (taken bool) {
	p.about(id, func(m *member) { taken = p.learned.of(m).Restore(&m.learned, &s, now) })
	return taken
}

// Prefills returns how long prefills take on the members with model together, as measured; zero: not known.
func (p *Pool) Prefills(model string) estimate.Speed {
	p.members.Lock()
	defer p.members.Unlock()
	return p.learned.asked(p.members.All, p.members.Serving(model)).MeasuredPrefills()
}

// LearnPosting takes in for how many seconds the replica id makes no step, for each token whose KV cache id
// reads from another replica. The seconds come from the engine's newest counts. Safe for concurrent use.
func (p *Pool) LearnPosting(id replica.ID, perToken float64) {
	p.about(id, func(m *member) { m.learned.LearnPosting(perToken) })
}
