package decode

import (
	"time"

	"tandem/scoring"
)

// learnPrefill takes in that the first token of l is there. It teaches what the prompts took that its replica
// has computed itself since it had none to compute.
func (p *Pool) learnPrefill(l *Lease, now time.Time) {
	m := l.member
	if !l.local {
		return
	}
	sentAt, roomy := l.stream.sentAt, l.stream.roomy
	if l.pieces.upto > 0 {
		sentAt = l.pieces.begins
	}
	p.learnComputed(l, l.tokens, sentAt, roomy && !l.pieces.failed, now)
	if l.stream.unseenArrival > 0 {
		m.busy.Spoil()
	}
	if len(m.ledger.local.leases) == 0 {
		busy := m.busy.End()
		busy.Teach(&m.prefill, &p.prefills)
	}
}

// learnComputed takes in that the prompt of l is there up to a token, behind what was there before, since the
// engine got that. Where it is not sure, nobody knows what else the time was spent on.
func (p *Pool) learnComputed(l *Lease, upto int, since time.Time, sure bool, now time.Time) {
	m, from := l.member, l.computed()
	before := m.busy.Computed(upto-from, from, now.Sub(since), now)
	before.Teach(&m.prefill, &p.prefills)
	if !sure || m.ledger.others.Count > 0 || m.remote.Work > 0 {
		m.busy.Spoil()
	}
}

// learnLength takes in that each sequence of l had so many tokens at its end. One that its limit has cut
// would have been longer.
func (p *Pool) learnLength(l *Lease, each int) {
	l.lengths.learn(l.told, each, l.limit >= 0 && each >= l.limit)
	p.ends.Learn(l.told, each)
	p.knowLengths()
}

// knowLengths works out what follows from how long answers were.
func (p *Pool) knowLengths() {
	p.usual, p.each = p.ends.Room(0, -1), float64(p.ends.Rest(0, -1))
}

// learnUnderway takes in that each sequence of l, whose answer is under way, has so many tokens by now.
func (p *Pool) learnUnderway(l *Lease, generated int) {
	l.lengths.passed(l.told, generated)
	p.ends.Passed(l.told, generated)
	l.told = generated
}

// learnStep takes in that l's steps took so many seconds, 0 unknown.
func (p *Pool) learnStep(l *Lease, step float64, now time.Time) {
	if step <= 0 {
		return
	}
	m := l.member
	batch, used := float64(l.batch+m.batch())/2, m.reported()
	if used == 0 {
		used = m.ledger.held
	}
	parts := scoring.DefaultSpeed().StepParts(max(batch, 1), float64(used*m.blockSize()))
	m.streams.recovered(&m.steps, parts, step, now)
	m.steps.LearnAt(parts, step, now)
	p.steps.LearnAt(parts, step, now)
}

// minSteps is the shortest answer whose pace says something about the speed.
const minSteps = 8
