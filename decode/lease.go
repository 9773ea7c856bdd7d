package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Schedule says when a booked request is expected to take which step. The zero Schedule is that of a request
// whose prefill may begin at once, elsewhere.
type Schedule struct {
	Local   bool      // the decode replica prefills it too: SendAt, LandAt, Transfer and Outbox say nothing
	AdmitAt time.Time // when its prefill should begin, until when its lease is reserved
	SendAt  time.Time // when its prefill should be done, so that it is sent to the decode replica
	LandAt  time.Time // when its KV blocks should be there

	Transfer time.Duration   // for which its KV blocks should be on their way
	Outbox   *replica.Outbox // of the replica that sends them, nil for nobody

	// UnseenArrival is how long after sending its prompt should be there, where nobody tells of the first
	// token; else 0.
	UnseenArrival time.Duration
}

// Lease is room booked on a decode replica. Whoever holds it ends it with Release or [Lease.Finish].
//
// All but pool and request is guarded by the lock of the pool.
type Lease struct {
	pool *Pool
	request

	member  *member
	lengths estimate.Expectation // of its answer's length
	slot    int                  // in the ledger's leases
	id      uint64               // counts up with each booking
	growth  int                  // blocks that the answer may well add

	state       state
	reservation reservation // until its prefill begins
	prompt      promptKV    // until its first token, and whose KV that is
	stream      stream      // from when the engine has got it
}

// request is what was booked. It is immutable.
type request struct {
	named     roster.Prompt
	tokens    int // of the prompt
	blocks    int // of the prompt
	inUse     int // of these, those that others had in use when it was booked
	matched   int // tokens of it that were believed to be there already
	sequences int // at least 1
	limit     int // new tokens of each sequence, -1 none
}

// state is how far a lease has come. It only ever moves down this list, and may leave out what is in
// between.
//
//	reserved   its prefill should not have begun. Its blocks are asked for, and not taken from what is free.
//	           Invariant: it is in Pool.reserved.
//	admitted   its blocks are promised, since no report of the engine can include them.
//	sent       the engine has got it, and still the newest report does not include it.
//	           Invariant: stream.sentAt is set, from now on.
//	reported   the newest report includes its blocks. Only its growth is ours to count.
//	ended      it is in no list and in no sum.
type state uint8

const (
	reserved state = iota
	admitted
	sent
	reported
	ended
)

// Book reserves c's replica for the request that c was made for. It returns nil when the replica left the
// pool, fell ill, began to drain or lost its room meanwhile.
func (p *Pool) Book(c *Candidate, q *Query, t Schedule, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	m := c.member
	if !m.Takes() {
		return nil
	}
	ready := q.Ready
	if t.Local {
		ready = 0
	}
	if a := p.accountNow(m, now); !p.admits(m, &a, c.Need, ready, now) {
		return nil
	}
	l := &Lease{
		pool: p, member: m, lengths: p.expects(q, true), growth: c.Need + c.inUse - c.blocks,
		reservation: reservation{admitAt: t.AdmitAt},
		prompt:      promptKV{local: t.Local}, stream: stream{unseenArrival: t.UnseenArrival},
		request: request{
			named:  roster.Prompt{Keys: q.Keys, Chunk: q.Chunk},
			tokens: q.Tokens, blocks: c.blocks, inUse: c.inUse, matched: c.Matched,
			sequences: max(q.Sequences, 1), limit: c.limit,
		},
	}
	l.prompt.pieces.Tokens, l.prompt.pieces.Prefix.Base = q.Tokens, c.Matched
	if t.Local {
		l.prompt.predicted = seconds(c.Local.Took() - c.shared)
		l.prompt.pieces.On = p.inPieces(q, m)
		m.learned.Traffic.Prefills.Add(now, c.Local.Warm-c.speed.Shared(q.Tokens-c.Expected))
	} else {
		l.prompt.inbound = inbound{transfer: t.Transfer, from: t.Outbox, sendAt: t.SendAt, landAt: t.LandAt}
		m.learned.Traffic.Inbound.Add(now)
	}
	m.learned.Traffic.Requests.Add(now)
	m.learned.Recall(now)
	p.add(l, now)
	return l
}

// Booked returns how many leases of id have not ended; 0 where it is no member. Safe for concurrent use.
func (p *Pool) Booked(id replica.ID) int {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		return len(m.ledger.leases)
	}
	return 0
}

// MarkSent says that the request is sent to the engine now, so that a later report can include it. Safe for
// concurrent use. On nil, on an ended lease and when repeated it does nothing.
func (l *Lease) MarkSent(now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	l.pool.send(l, now)
}

func (p *Pool) send(l *Lease, now time.Time) {
	if l.state >= sent {
		return
	}
	p.admit(l)
	m := l.member
	m.ledger.move(l, sent)
	m.ledger.others.Ours(m.known())
	l.stream.sentAt = now
	l.stream.begun = p.done(m, now)
	l.stream.roomy = p.hasRoom(m, now)
	l.stream.foreign = m.ledger.others.Count > 0 && m.load.Fetching() != 0
	if l.stream.roomy && (l.prompt.local || m.localWait(now) == 0) {
		l.stream.ahead = p.ahead(l, now)
	}
}

// ahead is who waits in the engine before l, as far as that is known. Whose blocks are on their way waits
// for nothing that the engine has to do, though it is counted among those that wait (vLLM,
// v1/core/sched/scheduler.py, make_stats): by the engine's word that it is so, and where as many have run
// somewhere in the pool as would now, since until the next report blocks that have come may wait for a
// turn.
func (p *Pool) ahead(l *Lease, now time.Time) ahead {
	m := l.member
	r := m.load.Read(now, p.settings.LoadTTL)
	switch {
	case r.Waiting <= 0:
		return behindNobody
	case r.Waiting <= m.load.Fetching() && r.Running >= 0 && r.Running+m.ledger.unheard <= p.mostRan():
		return besideTransfers
	}
	return behindOthers
}

// mostRan is the most sequences that any replica of the pool has run.
func (p *Pool) mostRan() (most int) {
	for _, m := range p.members.All {
		most = max(most, m.most.ran)
	}
	return most
}

// hasRoom reports whether the engine has room for all that it has been sent, as far as that is known.
func (p *Pool) hasRoom(m *member, now time.Time) bool {
	a := p.account(m, m.load.Read(now, p.settings.LoadTTL).Usage, math.NaN())
	return a.capacity == 0 || a.free >= 0
}

// Release ends the lease. A second call, and one on nil, does nothing. Safe for concurrent use.
func (l *Lease) Release(now time.Time) {
	if l != nil && l.released(now) {
		l.pool.Retract(&l.member.Member, l.named)
	}
}

// released ends the lease, and reports whether the index counts its prompt as the replica's although it has
// not come.
func (l *Lease) released(now time.Time) (guessed bool) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	guessed = l.prompt.guessed && l.state != ended && l.prompt.state != answered
	if l.state == sent || l.state == reported {
		l.member.ledger.others.GaveUp(l.sequences)
	}
	l.pool.end(l, now)
	return guessed
}

// Finish ends the lease of an answer that came to its end. outTokens counts all sequences; decoding is the
// time from the first token to the last, 0 where that says nothing of the engine.
func (l *Lease) Finish(outTokens int, decoding time.Duration, now time.Time) {
	if l == nil {
		return
	}
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.state == ended {
		return
	}
	if each := outTokens / l.sequences; each > 0 {
		p.learnLength(l, each, now)
		p.learnStep(l, l.stream.step(each, decoding), each, now)
	}
	p.end(l, now)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
