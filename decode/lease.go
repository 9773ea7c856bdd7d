package decode

import (
	"math"
	"slices"
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
	"tandem/scoring"
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

	member *member
	slot   int // in the ledger's leases
	state  state
	prompt promptState
	blocks int // of the prompt; immutable
	growth int // blocks that the answer is still expected to add
	batch  int // sequences on the replica when it was booked

	admitAt   time.Time // when it is admitted at the latest
	queueSlot int       // in Pool.reserved, while it is reserved

	sentAt      time.Time // when the engine got it; zero before that
	uncontended bool      // when it was sent nothing was there that it would have to wait for
	firstAt     time.Time // when its first token came
	guessed     bool      // its prompt is counted as the replica's before its events say so
	window      window    // of its stream

	unseenArrival time.Duration // as in Schedule

	local   bool         // its replica computes its prompt
	prefill localPrefill // where it does
	inbound inbound      // where it does not
}

// request is what was booked. It is immutable.
type request struct {
	lengths   *scoring.OutputLength // of the answers of its model
	named     roster.Prompt
	tokens    int // of the prompt
	matched   int // tokens of it that were believed to be there already
	sequences int // at least 1
	limit     int // new tokens of each sequence, -1 none
}

// localPrefill is the prompt of a lease whose replica computes it.
type localPrefill struct {
	predicted time.Duration
	alone     bool // no other was ahead when it was booked, so that its time is that of itself
}

// inbound is the KV blocks of a lease that another replica sends.
type inbound struct {
	transfer time.Duration   // predicted
	from     *replica.Outbox // of the sender
	place    time.Duration   // in it
	sendAt   time.Time       // when the request should be sent here
	landAt   time.Time       // when its blocks should be here
}

// state is how far a lease has come. It only ever moves down this list, and may leave out what is in between.
//
//	reserved   its prefill should not have begun. Its blocks are asked for, and not taken from what is free.
//	           Invariant: it is in Pool.reserved.
//	admitted   its blocks are promised, since no report of the engine can include them.
//	sent       the engine has got it, and still the newest report does not include it.
//	           Invariant: sentAt is set, from now on.
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

// promptState is what is known of the KV of a lease's prompt. It only ever moves down this list.
//
//	pending    it is not on the replica: it is in the ledger's list of local prefills, or of inbound KV.
//	arrived    it is there, or was due long ago, or will never be, since the lease has ended.
//	           Invariant: it is in neither list.
//	answered   the first token came.
type promptState uint8

const (
	pending promptState = iota
	arrived
	answered
)

// Book reserves c's replica for the request that c was made for. It returns nil when the replica left the
// pool, fell ill or lost its room meanwhile.
func (p *Pool) Book(c *Candidate, q *Query, t Schedule, now time.Time) *Lease {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	m := c.member
	if m.Gone || !m.Healthy {
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
		pool: p, member: m, blocks: c.blocks, growth: c.Need - c.blocks,
		admitAt: t.AdmitAt, local: t.Local, unseenArrival: t.UnseenArrival,
		request: request{
			lengths: p.lengthsOf(q.Model), named: roster.Prompt{Keys: q.Keys, Chunk: q.Chunk},
			tokens: q.Tokens, matched: c.Matched, sequences: max(q.Sequences, 1), limit: c.limit,
		},
	}
	if t.Local {
		l.prefill = localPrefill{predicted: seconds(c.Local.Warm), alone: m.prefillsNothing()}
		m.meter.Add(now, c.Local.Warm)
	} else {
		l.inbound = inbound{transfer: t.Transfer, from: t.Outbox, sendAt: t.SendAt, landAt: t.LandAt}
		m.pace.Add(now)
	}
	m.comes.Add(now)
	m.prefill.Recall(now)
	m.steps.Recall(now)
	p.add(l, now)
	l.batch = m.batch()
	return l
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
	l.sentAt = now
	reading := m.load.Read(now, p.settings.LoadTTL)
	a := p.account(m, reading.Usage, math.NaN())
	roomy := a.capacity == 0 || a.free >= 0
	nobodyWaits := reading.Waiting <= 0
	l.uncontended = roomy && nobodyWaits && (l.local || m.localWait(now) == 0)
}

// Holds reports whether l's replica is still there, healthy, has room for l and is through with the prompts
// that it prefills itself, behind which l would wait; if not, why, and in how long it should be ready,
// [Never] where it will not do any more.
func (l *Lease) Holds(now time.Time) (ok bool, reason string, room time.Duration) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	m := l.member
	switch {
	case m.Gone:
		return false, "it left the pool", Never
	case !m.Healthy:
		return false, "it is unhealthy", Never
	case l.state == ended:
		return false, "its lease has ended", Never
	}
	p.admitDue(now)
	if short, a := p.shortOf(l, now); short > 0 {
		return false, "it lost its room", p.roomIn(m, &a, short)
	}
	if busy := m.localWait(now); busy > soon && !l.local {
		return false, "it prefills other prompts", busy
	}
	return true, "", 0
}

// shortOf returns how many blocks its replica lacks for l, and the account without l that says so. What the
// engine counts already needs no room.
func (p *Pool) shortOf(l *Lease, now time.Time) (int, account) {
	m := l.member
	a := p.accountNow(m, now)
	switch l.state {
	case reported:
		return 0, a
	case admitted, sent:
		a.free += l.whole()
	}
	if a.fits(l.whole()) {
		return 0, a
	}
	return a.asked(l.whole()) - a.free, a
}

// Ahead returns the seconds of the transfers that were booked before l's and are not done: from the replica
// that sends its blocks, and to its own.
func (l *Lease) Ahead() (leaving, coming float64) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	for _, o := range l.member.ledger.inbound {
		if o == l {
			break
		}
		coming += o.inbound.transfer.Seconds()
	}
	return l.inbound.from.Ahead(l.inbound.place).Seconds(), coming
}

// soon is no time to look for another replica for.
const soon = 50 * time.Millisecond

// Never is longer than anybody waits.
const Never = time.Duration(math.MaxInt64)

// Alive reports whether l's replica is still in the pool and healthy.
func (l *Lease) Alive() bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	return !l.member.Gone && l.member.Healthy
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
	guessed = l.guessed && l.state != ended && l.prompt != answered
	l.pool.end(l, now)
	return guessed
}

// FirstToken says that the first token arrived, or the whole answer where nobody tells of the first. It
// returns how long that took since the request was sent, 0 when that is not known, says nothing because the
// request had to wait for room or behind local prefills, or was asked before. It teaches the speed of a local
// prefill, and that the replica has the prompt now where no events do.
func (l *Lease) FirstToken(now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	took, first := l.first(now)
	if first {
		l.pool.Await(&l.member.Member, l.named, now)
		l.pool.RecordComputed(&l.member.Member, l.named, 0, -1)
	}
	return took
}

func (l *Lease) first(now time.Time) (took time.Duration, first bool) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.prompt == answered || l.sentAt.IsZero() {
		return 0, false
	}
	l.member.ledger.arrive(l, now)
	l.prompt, l.firstAt = answered, now
	took = now.Sub(l.sentAt)
	if !l.uncontended || l.unseenArrival > 0 {
		return 0, true
	}
	p.learnPrefill(l, took, now)
	return took, true
}

// Step returns the seconds that a decode step on l's replica takes now.
func (l *Lease) Step() float64 {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	m := l.member
	return l.pool.speed(m).Step(m.batch(), m.reported()*m.blockSize())
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
		p.learnLength(l, each)
		p.learnStep(l, l.step(each, decoding), now)
	}
	p.end(l, now)
}

// speed returns the best that is known of m: what the operator says, what was measured on m, or on the pool.
func (p *Pool) speed(m *member) scoring.Speed {
	s := scoring.DefaultSpeed()
	if f, known := m.prefill.Of(&p.prefills.SpeedFit); known {
		s = s.WithPrefill(f)
	}
	if f, known := m.steps.Of(&p.steps.SpeedFit); known {
		s = s.WithDecode(f)
	}
	if said := &p.settings.Speed; said.KnowsPrefill() || said.KnowsDecode() {
		return said.Or(s)
	}
	return s
}

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) scoring.Pricing {
	if q.Seeded {
		return scoring.Pricing{Speed: p.settings.Speed.Or(scoring.DefaultSpeed())}
	}
	s := scoring.Pricing{Speed: p.speed(m)}
	if risk, eased := m.prefill.Eased(now); eased && !p.settings.Speed.KnowsPrefill() {
		s.Measured, s.Risk = scoring.DefaultSpeed().WithPrefill(m.prefill.Measured(&p.prefills.SpeedFit)), risk
	}
	return s
}

// Speculate lets the index count the blocks of the prompt that was booked on l's replica before its events
// say so, within the given time.
func (l *Lease) Speculate(within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	guess := !l.guessed && l.state != ended
	l.guessed = true
	l.pool.members.Unlock()
	if guess {
		l.pool.Speculate(&l.member.Member, l.named, within, now)
	}
}

// Exact reports whether nothing shows that other blocks of the prompt are on l's replica now than were
// believed when it was booked, or that somebody else brings or computes more of them there at the same time.
// Only then is it known what a transfer that begins now will move.
func (l *Lease) Exact() bool {
	return l.pool.HasOnly(&l.member.Member, l.named, l.matched) && !l.others()
}

// others reports whether the replica was sent a request before which has no answer yet and whose prompt has
// the next block in common that l's lacks.
func (l *Lease) others() bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	return slices.ContainsFunc(l.member.ledger.leases, func(o *Lease) bool {
		runs := o != l && o.state >= sent && o.prompt != answered
		return runs && p.Common(&l.named, &o.named, l.matched) > l.matched
	})
}

// Delivered tells how many tokens of the prompt the engine found in its own cache, -1 unknown, where it
// prefilled by itself: it corrects what is assumed of a replica without events.
func (l *Lease) Delivered(cached int) {
	if l != nil && l.local {
		l.pool.RecordComputed(&l.member.Member, l.named, l.matched, cached)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
