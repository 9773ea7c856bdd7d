package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// learnPrefill takes in that the first token of l is there.
func (p *Pool) learnPrefill(l *Lease, now time.Time) {
	m := l.member
	if !l.prompt.local {
		return
	}
	sentAt, roomy := l.stream.sentAt, l.stream.roomy
	if l.prompt.pieces.upto > 0 {
		sentAt = l.prompt.pieces.begins
	}
	p.learnComputed(l, l.computed(), l.tokens, sentAt, roomy && !l.prompt.pieces.failed, now)
	if l.stream.unseenArrival > 0 {
		m.measured.busy.Spoil()
	}
}

// endSpan teaches what the prompts took that the replica of l has computed itself since it had none to
// compute, where it has none now.
func (p *Pool) endSpan(l *Lease) {
	if m := l.member; l.prompt.local && m.ledger.local.none() {
		m.measured.prefill.LearnPrompts(&p.prefills, m.measured.busy.End())
	}
}

// learnComputed takes in that the prompt of l is there up to a token, behind those before from, since the
// engine got that. Where it is not sure, nobody knows what else the time was spent on.
func (p *Pool) learnComputed(l *Lease, from, upto int, since time.Time, sure bool, now time.Time) {
	m := l.member
	speed := p.speed(m)
	beside, _ := m.besidePrompt(&speed)
	before := m.measured.busy.Add(upto-from, from, beside, now.Sub(since), now)
	m.measured.prefill.LearnPrompts(&p.prefills, before)
	if !sure || m.ledger.others.Count > 0 || m.prefillsForOthers() {
		m.measured.busy.Spoil()
	}
}

// learnOwnSteps takes in the pauses of the streams beside a piece of l's prompt.
func (p *Pool) learnOwnSteps(l *Lease, beside Pauses, now time.Time) {
	x, piece := &l.prompt.pieces, p.settings.Piece.Seconds()
	m, speed := l.member, p.speed(l.member)
	step := m.step(&speed)
	took, expected := now.Sub(x.begins).Seconds(), x.lasts+step
	alike, known := beside.alike()
	if !known || !x.roomy || x.lasts < piece/2 || step > stepBeside*x.lasts {
		return // nobody could tell
	}
	if took < x.lasts/2 || took > heldBack*expected {
		return // most of it was not computed then
	}
	m.measured.own.learn(alike, now)
}

// learnLength takes in that each sequence of l had so many tokens at its end. One that its limit has cut
// would have been longer.
func (p *Pool) learnLength(l *Lease, each int) {
	if l.limit >= 0 && each >= l.limit {
		l.lengths.cut(l.stream.told, each)
	} else {
		l.lengths.learn(l.stream.told, each)
	}
	p.lengths.ends.Learn(l.stream.told, each)
	l.stream.told = 0
	p.lengths.workOut()
}

// leaveLength takes in that nobody will tell how long the answer of l would have become, unless it is known.
func (p *Pool) leaveLength(l *Lease) {
	l.lengths.cut(l.stream.told, l.stream.told)
	p.lengths.ends.Cut(l.stream.told, l.stream.told)
	l.stream.told = 0
}

// learnUnderway takes in that each sequence of l, whose answer is under way, has so many tokens by now.
func (p *Pool) learnUnderway(l *Lease, generated int) {
	l.lengths.passed(l.stream.told, generated)
	p.lengths.ends.Passed(l.stream.told, generated)
	l.stream.told = generated
}

// learnStep takes in that l's answer took so many seconds for each of so many tokens, 0 unknown. Its steps
// were shorter: the replica has computed prompts meanwhile, or other routers' for a share of the time. Where
// that was nearly all of it, it says nothing of them.
func (p *Pool) learnStep(l *Lease, token float64, tokens int, now time.Time) {
	m := l.member
	was := &l.stream.meanwhile
	if l.stream.unseenArrival == 0 {
		*was = p.since(&l.stream.begun, m, now)
	}
	speed := p.speed(m)
	own := speed.Step(int(was.sequences), int(was.tokens))
	own = estimate.OwnPart(own, was.held/float64(tokens)) * max(0, 1-m.remote.Rho)
	if token <= 0 {
		return
	}
	if m.measured.learnPerToken(own); own < leastSteps {
		return
	}
	work := estimate.DefaultSpeed().StepParts(max(was.sequences, 1), was.tokens)
	s := estimate.Took(estimate.StepTime, work, token*own, now)
	m.measured.streams.recovered(&m.measured.steps, s)
	m.measured.steps.LearnAt(s)
	p.steps.LearnAt(s)
}

// leastSteps is the part of an answer's time from which on it says something of its steps.
const leastSteps = 0.1

// minSteps is the shortest answer whose pace says something about the speed.
const minSteps = 8
