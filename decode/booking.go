package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
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
	l := &Lease{pool: p, member: m, lengths: p.learned.expects(q, true), limit: c.limit, goal: q.Asked.Goal()}
	l.entry.Of = l
	l.entry.Promise = ledger.Promise{
		Named: q.named(), Tokens: q.Tokens, Blocks: c.prompt,
		Matched: c.Matched, Sequences: max(q.Sequences, 1), Local: t.Local, UnseenArrival: t.UnseenArrival,
	}
	l.pieces.Tokens, l.pieces.Prefix.Base = q.Tokens, c.Matched
	if t.Local {
		l.pieces.Pull(c.Source.Tokens)
		l.pieces.Predicted = seconds(c.Local.Took() - c.shared)
		l.pieces.On = p.cutter.cuts(q, m)
		l.reads = c.readBack(q)
		m.learned.Traffic.Prefills.Add(now, c.Local.Warm-c.speed.Shared(q.Tokens-c.there()))
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

// readBack returns what c would read back for q, nil for nothing.
func (c *Candidate) readBack(q *Query) *estimate.ReadBack {
	if c.Local.Read == 0 || c.Source.Tokens > 0 { // the time of a pull teaches nothing
		return nil
	}
	return &estimate.ReadBack{
		Tokens: c.Below.Tiers(), Rest: c.Local.Wait + c.Local.Took(), Alone: c.member.local.empty(),
		Unsure: q.Stored > 0,
	}
}

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

// enter enters l into the account of its member, and into the queue that its prompt waits in.
func (p *Pool) enter(l *Lease, t ledger.Terms, now time.Time) {
	m := l.member
	p.ledger.Enter(&m.account, &l.entry, t, now)
	m.goals.count(l.goal, l.entry.Sequences)
	switch {
	case !l.entry.Missing():
	case l.entry.Local:
		l.pieces.ID, l.pieces.Due = l.entry.ID(), p.cutter.turnOf(now, l.pieces.Predicted)
		m.local.turns.Enter(&l.pieces, now)
	default:
		l.place = l.from.Add(l.entry.Transfer)
	}
}

// shortOf returns the blocks that l's replica lacks for l, and the headroom without l that says so. Blocks
// that the engine reports already need no room.
func (p *Pool) shortOf(l *Lease, now time.Time) (int, ledger.Headroom) {
	m := l.member
	a := p.rooms.headroomNow(m, p.members.All, now)
	switch l.entry.State() {
	case ledger.Reported:
		return 0, a
	case ledger.Admitted, ledger.Sent:
		a.Free += l.entry.Whole()
	}
	if a.Fits(l.entry.Whole()) {
		return 0, a
	}
	return a.Asked(l.entry.Whole()) - a.Free, a
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
	if m := l.member; p.arrive(l, now) && l.entry.Local {
		m.learned.GaveUp(m.local.turns.Empty())
	}
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
		r.Running+m.account.Unheard <= p.rooms.sequences.ran(m, p.members.All):
		return besideTransfers
	}
	return behindOthers
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
	m.goals.count(l.goal, -e.Sequences)
	m.learned.Decodes(m.decodes())
	l.member.endPieces(&l.pieces, now)
	m.beside.End(&l.stream.read)
}

// own returns the blocks that certainly come free when l ends: the blocks that no other request shares. l
// may have found its first blocks in the cache, and other requests may have found l's blocks there.
func (p *Pool) own(l *Lease, now time.Time) int {
	m, e := l.member, &l.entry
	size := m.cache().blockSize()
	blocks, shared := blocksOf(e.Tokens, size), m.account.InReport(e, e.Matched)
	slots := l.has(l.generated(p.learned.perToken(m), now))
	return max(0, blocks-shared/size) + e.Sequences*(blocksOf(slots, size)-blocks)
}
