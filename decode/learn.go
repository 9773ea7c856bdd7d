package decode

import (
	"time"

	"tandem/scoring"
)

// lengthsOf returns what is learned of the answers of model.
func (p *Pool) lengthsOf(model string) *scoring.OutputLength {
	l := p.lengths[model]
	if l == nil {
		l = p.answers.Under()
		p.lengths[model] = l
	}
	return l
}

// learnPrefill takes in that the first token of l came so long after the request was sent. Behind another
// prompt that says nothing of its own.
func (p *Pool) learnPrefill(l *Lease, took time.Duration, now time.Time) {
	if !l.local || !l.prefill.alone || took <= 0 {
		return
	}
	parts := scoring.DefaultSpeed().PrefillParts(l.tokens-l.matched, l.matched)
	l.member.prefill.LearnAt(parts, took.Seconds(), now)
	p.prefills.LearnAt(parts, took.Seconds(), now)
}

// learnLength takes in that each sequence of l had so many tokens at its end. One that its limit has cut
// would have been longer.
func (p *Pool) learnLength(l *Lease, each int) {
	if l.limit >= 0 && each >= l.limit {
		l.lengths.Passed(l.told, each)
	} else {
		l.lengths.Learn(l.told, each)
	}
	p.ends.Learn(l.told, each)
	p.usual = p.ends.Room(0, -1)
}

// learnUnderway takes in that each sequence of l, whose answer is under way, has so many tokens by now.
func (p *Pool) learnUnderway(l *Lease, generated int) {
	l.lengths.Passed(l.told, generated)
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
