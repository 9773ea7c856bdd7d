package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// learnPrefill records that the first token of l has come.
func (p *Pool) learnPrefill(l *Lease, now time.Time) {
	m := l.member
	if !l.entry.Local {
		return
	}
	sentAt, roomy := l.entry.SentAt(), l.stream.roomy
	if l.pieces.Upto > 0 {
		sentAt = l.pieces.Begins
	}
	p.learnComputed(l, l.computed(), l.entry.Tokens, sentAt, roomy && !l.pieces.Failed, now)
	if l.entry.UnseenArrival > 0 {
		m.learned.Spoil()
	}
}

// endSpan ends the span of local prompts on the replica of l, if the replica has no prompt left, and learns
// from it.
func (p *Pool) endSpan(l *Lease) {
	if m := l.member; l.entry.Local && m.local.turns.Empty() {
		p.learned.Idle(&m.learned.Prompts)
	}
}

// learnComputed takes in that the prompt of l is there up to a token, behind those before from, since the
// engine got that. If sure is false, the engine may have spent the time on other work.
func (p *Pool) learnComputed(l *Lease, from, upto int, since time.Time, sure bool, now time.Time) {
	m := l.member
	speed := p.speed(m)
	beside, _ := m.besidePrompt(&speed)
	p.learned.Computed(&m.learned.Prompts, upto-from, from, beside, now.Sub(since), now)
	if !sure || m.Others.Count > 0 || m.local.forOthers() {
		m.learned.Spoil()
	}
}

// learnOwnSteps takes in the pauses of streams beside a piece of l's prompt.
func (p *Pool) learnOwnSteps(l *Lease, beside Pauses, now time.Time) {
	x, piece := &l.pieces, p.settings.Piece.Seconds()
	m, speed := l.member, p.speed(l.member)
	step := m.step(&speed)
	took, expected := now.Sub(x.Begins).Seconds(), x.Lasts+step
	alike, known := beside.Alike()
	if !known || !x.Roomy || x.Lasts < piece/2 || step > stepBeside*x.Lasts {
		return // the pauses are unknown
	}
	if took < x.Lasts/2 || took > heldBack*expected {
		return // the time was mostly spent on something else
	}
	s := estimate.Sample{Of: estimate.PauseShare, At: now, Range: estimate.Exactly(alike)}
	p.learned.Learn(&m.learned, s)
}

const (
	// stepBeside is the most that a decode step may be of a piece that tells: the one with a shorter piece in
	// it and the one beside it look like two of several.
	stepBeside = 0.35
	// heldBack is how many times as long as predicted takes what has waited for something else.
	heldBack = 1.5
)

// learnLength takes in that each sequence of l had so many tokens at its end. One that its limit has cut
// would have been longer.
func (p *Pool) learnLength(l *Lease, each int, now time.Time) {
	if l.limit >= 0 && each >= l.limit {
		p.lengths.Cut(&l.lengths, each)
		return
	}
	s := estimate.Sample{Of: estimate.AnswerTokens, At: now, Range: estimate.Exactly(float64(each))}
	p.lengths.Learn(&l.lengths, s)
}

// learnUnderway takes in that each sequence of l, whose answer is under way, has so many tokens by now.
func (p *Pool) learnUnderway(l *Lease, generated int, now time.Time) {
	p.lengths.Learn(&l.lengths, estimate.Sample{
		Of: estimate.AnswerTokens, At: now, Range: estimate.Range{Low: float64(generated), High: math.Inf(1)},
	})
}

// learnStep takes in that l's answer took so many seconds for each of so many tokens, 0 unknown.
func (p *Pool) learnStep(l *Lease, token float64, tokens int, now time.Time) {
	m, was := l.member, &l.stream.meanwhile
	if l.entry.UnseenArrival == 0 {
		*was = p.since(&l.stream.begun, m, now)
	}
	s := estimate.Took(estimate.StepTime, estimate.Work{}, token, now)
	s.Load, s.Elsewhere = was.Load, m.remote.Rho
	s.Beside = was.Held / float64(tokens)
	p.learned.Learn(&m.learned, s)
}
