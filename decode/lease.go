package decode

import (
	"math"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/internal/roster"
	"tandem/scoring"
)

// Terms says how a request is booked.
type Terms struct {
	HardAt time.Time       // when its prefill should begin; until then the lease is soft. Now or earlier: hard at once
	SentAt time.Time       // when its prefill should be done, so that it is sent to the decode replica
	LandAt time.Time       // when its KV blocks should be there
	Local  bool            // the replica prefills it too
	Moving time.Duration   // for which its KV blocks should be on their way
	Outbox *replica.Outbox // of the replica that sends them, nil for nobody

	Untold time.Duration // until its KV should be there, where nobody will tell of the first token; 0 where somebody will
}

// Book reserves c's replica for the request that c was made for. It returns nil when the replica left the pool, fell ill or lost its room meanwhile.
func (p *Pool) Book(c *Candidate, q *Query, t Terms, now time.Time) *Lease {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.turnHard(now)
	m := c.member
	if m.Gone || !m.Healthy {
		return nil
	}
	ready := q.Ready
	if t.Local {
		ready = 0
	}
	if a := p.account(m, now, p.mean(now).usage); !p.takes(m, &a, c.Need, ready, now) {
		return nil
	}
	l := &Lease{
		pool: p, member: m, hardAt: t.HardAt, lengths: p.lengthsOf(q.Model), prompt: q.Tokens, matched: c.Matched, named: roster.Prompt{Keys: q.Keys, Chunk: q.Chunk},
		sequences: max(q.Sequences, 1), limit: c.limit, blocks: c.blocks, more: c.Need - c.blocks, local: t.Local,
	}
	if t.Local {
		l.warm, l.alone = seconds(c.Local.Warm), len(m.ledger.warming.leases) == 0 && m.elsewhere.Work == 0
		m.meter.Add(now, c.Local.Warm)
	} else {
		m.pace.Add(now)
		l.moving, l.outbox, l.sentAt, l.landAt = t.Moving, t.Outbox, t.SentAt, t.LandAt
	}
	m.comes.Add(now)
	m.prefill.Recall(now)
	m.steps.Recall(now)
	l.awaited, l.untold = true, t.Untold
	p.add(l, now)
	l.batch = m.there()
	return l
}

func (p *Pool) lengthsOf(model string) *scoring.Lengths {
	l := p.lengths[model]
	if l == nil {
		l = new(scoring.NewLengths(p.settings.ExpectedOutput))
		p.lengths[model] = l
	}
	return l
}

// Harden says that the request is sent to the engine now: the lease is hard, and from the next report on the engine counts it itself. Safe for
// concurrent use; harmless on nil, on an ended lease and when repeated.
func (l *Lease) Harden(now time.Time) {
	if l == nil {
		return
	}
	l.pool.Mu.Lock()
	defer l.pool.Mu.Unlock()
	l.pool.bind(l, now)
}

func (p *Pool) bind(l *Lease, now time.Time) {
	if l.state == ended {
		return
	}
	p.harden(l)
	if l.bound {
		return
	}
	m := l.member
	l.bound, l.boundAt = true, now
	m.ledger.bound += l.sequences
	a := p.account(m, now, math.NaN())
	l.clear = m.load.Waiting(now, p.settings.LoadTTL) <= 0 && (a.capacity == 0 || a.free >= 0) && (l.local || m.warms(now) == 0)
}

// Grow tells how many tokens each sequence has by now, where somebody counts them; without it they are estimated.
func (l *Lease) Grow(generated int, now time.Time) {
	if l == nil {
		return
	}
	l.pool.Mu.Lock()
	defer l.pool.Mu.Unlock()
	if l.state != ended && generated >= l.generated {
		l.generated, l.toldAt = generated, now
	}
}

// Holds reports whether l's replica is still there, healthy, has room for l and is through with the prompts that it prefills itself, behind which l would wait; if
// not, why, and in how long it should be ready, [Never] where it will not do any more.
func (l *Lease) Holds(now time.Time) (ok bool, reason string, room time.Duration) {
	p := l.pool
	p.Mu.Lock()
	defer p.Mu.Unlock()
	m := l.member
	switch {
	case m.Gone:
		return false, "it left the pool", Never
	case !m.Healthy:
		return false, "it is unhealthy", Never
	case l.state == ended:
		return false, "its lease has ended", Never
	}
	p.turnHard(now)
	a := p.account(m, now, p.mean(now).usage)
	if l.state == hard && !l.covered {
		a.free += l.whole()
	}
	if !l.covered && !a.fits(l.whole()) {
		return false, "it lost its room", p.roomIn(m, &a, a.asked(l.whole())-a.free)
	}
	if busy := m.warms(now); busy > soon && !l.local {
		return false, "it prefills other prompts", busy
	}
	return true, "", 0
}

// soon is no time to look for another replica for.
const soon = 50 * time.Millisecond

// Never is longer than anybody waits.
const Never = time.Duration(math.MaxInt64)

// Alive reports whether l's replica is still in the pool and healthy.
func (l *Lease) Alive() bool {
	l.pool.Mu.Lock()
	defer l.pool.Mu.Unlock()
	return !l.member.Gone && l.member.Healthy
}

// Release ends the lease. A second call, and one on nil, does nothing. Safe for concurrent use.
func (l *Lease) Release(now time.Time) {
	if l == nil {
		return
	}
	l.pool.Mu.Lock()
	defer l.pool.Mu.Unlock()
	l.pool.end(l, now)
}

// end reports whether l was still live.
func (p *Pool) end(l *Lease, now time.Time) bool {
	if l.state == ended {
		return false
	}
	p.remove(l, now)
	return true
}

// FirstToken says that the first token arrived, or the whole answer where nobody tells of the first. It returns how long that took since the request was sent, 0 when
// that is not known, says nothing because the request had to wait for room or behind local prefills, or was asked before. It teaches the speed of a local prefill, and
// that the replica has the prompt now where no events do.
func (l *Lease) FirstToken(now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	took, first := l.first(now)
	if first {
		l.pool.Computed(&l.member.Member, l.named, 0, -1)
	}
	return took
}

func (l *Lease) first(now time.Time) (took time.Duration, first bool) {
	p := l.pool
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if l.firstSeen || !l.bound {
		return 0, false
	}
	l.firstSeen, l.firstAt = true, now
	l.landed(now)
	took = now.Sub(l.boundAt)
	if !l.clear || l.untold > 0 {
		return 0, true
	}
	if l.local && l.alone && took > 0 {
		parts := scoring.DefaultSpeed().PrefillParts(l.prompt-l.matched, l.matched)
		l.member.prefill.LearnAt(parts, took.Seconds(), now)
		p.prefills.LearnAt(parts, took.Seconds(), now)
	}
	return took, true
}

// Step returns the seconds that a decode step on l's replica takes now.
func (l *Lease) Step() float64 {
	l.pool.Mu.Lock()
	defer l.pool.Mu.Unlock()
	m := l.member
	return l.pool.speed(m).Step(m.there(), m.reported()*m.blockSize())
}

// Finish ends the lease of an answer that came to its end. outTokens counts all sequences; decoding is the time from the first token to the last, 0 where that
// says nothing of the engine.
func (l *Lease) Finish(outTokens int, decoding time.Duration, now time.Time) {
	if l == nil {
		return
	}
	p := l.pool
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if l.state == ended {
		return
	}
	if each := outTokens / l.sequences; each > 0 {
		p.learnLength(l, each)
		p.learnStep(l, l.step(each, decoding), now)
	}
	p.end(l, now)
}

// learnLength takes in that each sequence of l had so many tokens at its end. One that its limit has cut would have been longer.
func (p *Pool) learnLength(l *Lease, each int) {
	learn := [...]*scoring.Lengths{l.lengths, &p.answers}
	for _, lengths := range learn {
		if l.limit >= 0 && each >= l.limit {
			lengths.LearnCut(each)
		} else {
			lengths.Learn(each)
		}
	}
	p.ends.Learn(each)
	p.usual = p.ends.Rest(0, -1)
}

// learnStep takes in that l's steps took so many seconds, 0 unknown.
func (p *Pool) learnStep(l *Lease, step float64, now time.Time) {
	if step <= 0 {
		return
	}
	m := l.member
	batch, used := float64(l.batch+m.there())/2, m.reported()
	if used == 0 {
		used = m.ledger.held
	}
	parts := scoring.DefaultSpeed().StepParts(max(batch, 1), float64(used*m.blockSize()))
	m.steps.LearnAt(parts, step, now)
	p.steps.LearnAt(parts, step, now)
}

// step returns the seconds that a step of l took on average, 0 where that is not known. Of an answer that is not streamed nobody sees the first token: it tells
// something where nearly all of its time must have been decoding.
func (l *Lease) step(each int, decoding time.Duration) float64 {
	switch whole := l.firstAt.Sub(l.boundAt); {
	case each < minSteps:
		return 0
	case l.untold == 0:
		return decoding.Seconds() / float64(each-1)
	case l.firstSeen && l.clear && whole > mostlySteps*l.untold:
		return (whole - l.untold).Seconds() / float64(each)
	}
	return 0
}

// mostlySteps is how many times longer than until its first token an answer must have taken to tell something of its steps.
const mostlySteps = 5

// minSteps is the shortest answer whose pace says something about the speed.
const minSteps = 8

// speed returns the best that is known of m: what the operator says, what was measured on m, or on the pool.
func (p *Pool) speed(m *member) scoring.Speed {
	s := scoring.DefaultSpeed()
	if fit := known(&m.prefill.Fit, &p.prefills.Fit); fit != nil {
		s = s.WithPrefill(fit.Within(&p.prefills.Fit))
	}
	if fit := known(&m.steps.Fit, &p.steps.Fit); fit != nil {
		s = s.WithDecode(fit.Within(&p.steps.Fit))
	}
	return p.settings.Speed.Or(s)
}

// pricing returns the speed of m that a plan for q is priced with.
func (p *Pool) pricing(m *member, q *Query, now time.Time) scoring.Pricing {
	if q.Seeded {
		return scoring.Pricing{Speed: p.settings.Speed.Or(scoring.DefaultSpeed())}
	}
	s := scoring.Pricing{Speed: p.speed(m)}
	if risk, eased := m.prefill.Eased(now); eased && !p.settings.Speed.KnowsPrefill() {
		s.Measured, s.Risk = scoring.DefaultSpeed().WithPrefill(m.prefill.Measured(&p.prefills.Fit)), risk
	}
	return s
}

func known(fits ...*scoring.Fit) *scoring.Fit {
	for _, f := range fits {
		if f.Known() {
			return f
		}
	}
	return nil
}

// Speculate lets the index count the blocks of keys, which belong to the prompt that was booked, on l's replica before its events say so, within the given
// time. keys are kept: nobody may change them.
func (l *Lease) Speculate(keys []kv.Key, within time.Duration, now time.Time) {
	if l != nil {
		l.pool.Speculate(&l.member.Member, roster.Prompt{Keys: keys, Chunk: l.named.Chunk}, within, now)
	}
}

// Delivered tells how many tokens of the prompt the engine found in its own cache, -1 unknown, where it prefilled by itself: it corrects what is assumed of
// a replica without events.
func (l *Lease) Delivered(cached int) {
	if l != nil && l.local {
		l.pool.Computed(&l.member.Member, l.named, l.matched, cached)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
