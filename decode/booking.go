package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

// Book reserves c's replica for the request that c was made for. It returns nil if the replica has left the
// pool, become unhealthy, begun to drain or lost its room meanwhile.
func (p *Pool) Book(c *Candidate, q *Query, t Schedule, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	p.ledger.AdmitDue(now)
	m := c.member
	if !m.Takes() {
		return nil
	}
	ready := q.Ready
	if t.Local {
		ready = 0
	}
	if a := p.rooms.headroomNow(m, p.members.All, now); !p.rooms.admits(m, &a, c.Need, ready, p.ledger.At(now)) {
		return nil
	}
	l := &Lease{pool: p, member: m, lengths: p.learned.expects(q, true), limit: c.limit}
	l.entry.Of = l
	l.entry.Promise = ledger.Promise{
		Named: roster.Prompt{Keys: q.Keys, Chunk: q.Chunk}, Tokens: q.Tokens, Blocks: c.prompt,
		Matched: c.Matched, Sequences: max(q.Sequences, 1), Local: t.Local, UnseenArrival: t.UnseenArrival,
	}
	l.pieces.Tokens, l.pieces.Prefix.Base = q.Tokens, c.Matched
	if t.Local {
		l.pieces.Predicted = seconds(c.Local.Took() - c.shared)
		l.pieces.On = p.cutter.cuts(q, m)
		m.learned.Traffic.Prefills.Add(now, c.Local.Warm-c.speed.Shared(q.Tokens-c.Expected))
	} else {
		l.entry.Transfer, l.from = t.Transfer, t.Outbox
		m.learned.Traffic.Inbound.Add(now)
	}
	m.learned.Traffic.Requests.Add(now)
	m.learned.Recall(now)
	growth := c.Need - c.prompt
	p.enter(l, ledger.Terms{Growth: growth, Admit: t.AdmitAt, Send: t.SendAt, Land: t.LandAt}, now)
	return l
}

// enter enters l into the account of its member, and into the queue that its prompt waits in.
func (p *Pool) enter(l *Lease, t ledger.Terms, now time.Time) {
	m := l.member
	p.ledger.Enter(&m.account, &l.entry, t, now)
	switch {
	case !l.entry.Missing():
	case l.entry.Local:
		l.pieces.ID, l.pieces.Due = l.entry.ID(), p.cutter.turnOf(now, l.pieces.Predicted)
		m.local.turns.Enter(&l.pieces, now)
	default:
		l.place = l.from.Add(l.entry.Transfer)
	}
}

// arrive records that the prompt of l is there, or never will be. It reports whether that was new.
func (p *Pool) arrive(l *Lease, now time.Time) bool {
	if !l.member.account.Arrive(&l.entry) {
		return false
	}
	if l.entry.Local {
		l.member.local.turns.Exit(&l.pieces, now)
	} else {
		l.from.Add(-l.entry.Transfer)
	}
	return true
}

// arriveUnseen is arrive without an observation of whether and when the prompt was there.
func (p *Pool) arriveUnseen(l *Lease, now time.Time) {
	if p.arrive(l, now) && l.entry.Local {
		l.member.learned.GaveUp(l.member.local.turns.Empty())
	}
}

// MarkSent records that the request is sent to the engine now, so that a later report can include it. Safe
// for concurrent use. On nil, on an ended lease and when repeated it does nothing.
func (l *Lease) MarkSent(now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	l.pool.send(l, now)
}

func (p *Pool) send(l *Lease, now time.Time) {
	if l.entry.State() >= ledger.Sent {
		return
	}
	m := l.member
	p.ledger.Send(&l.entry, now)
	m.Others.Ours(m.known())
	l.stream.begun = p.learned.done(m, now)
	l.stream.roomy = p.rooms.enough(m, now)
	l.stream.foreign = m.Others.Count > 0 && m.load.Fetching() != 0
	if l.stream.roomy && (l.entry.Local || m.local.wait(now) == 0) {
		l.stream.ahead = p.ahead(l, now)
	}
}

// ahead returns what l waits for in its engine, as far as is known. vLLM's waiting count includes requests
// whose KV is arriving (v1/core/sched/scheduler.py, make_stats). Such a request does not delay l. It is left
// out only if the engine reports such requests, and if some replica of the pool has run as many sequences as
// would run now. Otherwise blocks that have arrived may wait for a turn until the next report.
func (p *Pool) ahead(l *Lease, now time.Time) ahead {
	m := l.member
	r := m.load.Read(now, p.settings.LoadTTL)
	switch {
	case r.Waiting <= 0:
		return behindNobody
	case r.Waiting <= m.load.Fetching() && r.Running >= 0 &&
		r.Running+m.account.Unheard <= p.rooms.sequences.ran(p.members.All):
		return besideTransfers
	}
	return behindOthers
}

// Release ends the lease. A second call, and a call on nil, does nothing. Safe for concurrent use.
func (l *Lease) Release(now time.Time) {
	if l != nil && l.released(now) {
		l.pool.Retract(&l.member.Member, l.entry.Named)
	}
}

// released ends the lease, and reports whether the index counts its prompt as the replica's although the
// prompt has not arrived.
func (l *Lease) released(now time.Time) (guessed bool) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	e := &l.entry
	guessed = l.guessed && e.State() != ledger.Ended && e.PromptState() != ledger.Answered
	if e.AtEngine() {
		l.member.Others.GaveUp(e.Sequences)
	}
	l.pool.end(l, now)
	return guessed
}

// Finish ends the lease of a finished answer. outTokens counts all sequences. decoding is the time from the
// first token to the last, 0 if that is no measure of the engine.
func (l *Lease) Finish(outTokens int, decoding time.Duration, now time.Time) {
	if l == nil {
		return
	}
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.State() == ledger.Ended {
		return
	}
	if each := outTokens / l.entry.Sequences; each > 0 {
		p.learned.length(l, each, now)
		p.learned.steps(l, l.step(each, decoding), each, now)
	}
	p.end(l, now)
}

// end takes l out of all lists and sums, once.
func (p *Pool) end(l *Lease, now time.Time) {
	m, e := l.member, &l.entry
	if e.State() == ledger.Ended {
		return
	}
	if e.State() == ledger.Reported {
		m.account.ComeFree(e, p.own(l, now), now)
	}
	p.learned.count(m, now)
	p.arriveUnseen(l, now)
	p.learned.lengths.Leave(&l.lengths)
	if e.State() >= ledger.Sent {
		m.most.End()
	}
	p.ledger.End(e)
	m.learned.Decodes(m.decodes())
	l.member.endPieces(&l.pieces, now)
	m.beside.End(&l.stream.read)
}

// own returns the blocks that certainly come free when l ends: the blocks that no other request shares. l
// may have found its first blocks in the cache, and other requests may have found l's blocks there.
func (p *Pool) own(l *Lease, now time.Time) int {
	m, e := l.member, &l.entry
	size := m.cache().blockSize()
	blocks, shared := blocksOf(e.Tokens, size), m.account.InReport(e, e.Matched, p)
	return max(0, blocks-shared/size) + e.Sequences*(blocksOf(l.has(p.generated(l, now)), size)-blocks)
}
