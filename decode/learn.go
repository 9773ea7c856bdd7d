package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// prefill records that the first token of l has come.
func (k *lessons) prefill(l *Lease, now time.Time) {
	m := l.member
	if !l.entry.Local {
		return
	}
	sentAt, roomy := l.entry.SentAt(), l.stream.roomy
	if l.pieces.Upto > 0 {
		sentAt = l.pieces.Begins
	}
	sure := roomy && !l.pieces.Pulls && !l.pieces.Failed && !k.paused(l, now)
	k.computed(m, l.pieces.Prefix.Tokens(), l.entry.Tokens, sentAt, sure, now)
	if l.entry.UnseenArrival > 0 {
		m.learned.Spoil()
	}
}

// paused reports whether the replica of l waited noticeably for blocks of the first part of l's prompt, which
// has just been computed.
func (k *lessons) paused(l *Lease, now time.Time) bool {
	m := l.member
	return !l.pieces.Begun && k.of(m).Pauses(&m.learned.Prompts, l.reads, now)
}

// read takes in how long l took, whose engine found cached tokens of the prompt. Where it found fewer than
// expected, the time says nothing about reading.
func (k *lessons) read(l *Lease, cached int, now time.Time) {
	m, x := l.member, l.reads
	firstAt := l.stream.firstAt
	if x == nil || cached < l.entry.Matched || firstAt.IsZero() || l.entry.UnseenArrival > 0 {
		return
	}
	k.of(m).HasRead(&m.learned.Prompts, x, firstAt.Sub(l.pieces.BookedAt).Seconds(), now)
	l.reads = nil
}

// idle ends the span of local prompts on the replica of l, if the replica has no prompt left, and learns
// from it.
func (k *lessons) idle(l *Lease) {
	if m := l.member; l.entry.Local && m.local.turns.Empty() {
		k.of(m).Idle(&m.learned.Prompts)
	}
}

// computed takes in that a prompt is on m up to a token, behind the tokens before from, since m's engine got
// that part. If sure is false, the engine may have spent the time on other work.
func (k *lessons) computed(m *member, from, upto int, since time.Time, sure bool, now time.Time) {
	speed := k.speed(m)
	beside, _ := m.besidePrompt(&speed)
	k.of(m).Computed(&m.learned.Prompts, upto-from, from, beside, now.Sub(since), now)
	if !sure || m.Others.Count > 0 || m.local.forOthers() || m.remote.First.EndedAfter(since) {
		m.learned.Spoil()
	}
}

// besidePiece takes in the pauses of m's streams beside a piece of x. piece is the usual seconds of a piece.
func (k *lessons) besidePiece(m *member, x *turns.Prompt, beside Pauses, piece float64, now time.Time) {
	speed := k.speed(m)
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
	k.of(m).Learn(&m.learned, s)
}

const (
	// stepBeside is the most that a decode step may be of a piece that tells: the one with a shorter piece in
	// it and the one beside it look like two of several.
	stepBeside = 0.35
	// heldBack is how many times as long as predicted takes what has waited for something else.
	heldBack = 1.5
)

// length takes in that each sequence of l had so many tokens at its end. One that its limit has cut
// would have been longer.
func (k *lessons) length(l *Lease, each int, now time.Time) {
	if l.limit >= 0 && each >= l.limit {
		k.lengths.Cut(&l.lengths, each)
		return
	}
	s := estimate.Sample{Of: estimate.AnswerTokens, At: now, Range: estimate.Exactly(float64(each))}
	k.lengths.Learn(&l.lengths, s)
}

// underway takes in that each sequence of l, whose answer is under way, has so many tokens by now.
func (k *lessons) underway(l *Lease, generated int, now time.Time) {
	k.lengths.Learn(&l.lengths, estimate.Sample{
		Of: estimate.AnswerTokens, At: now, Range: estimate.Range{Low: float64(generated), High: math.Inf(1)},
	})
}

// steps takes in that l's answer took so many seconds for each of so many tokens, 0 unknown.
func (k *lessons) steps(l *Lease, token float64, tokens int, now time.Time) {
	m, was := l.member, &l.stream.meanwhile
	if l.entry.UnseenArrival == 0 {
		*was = k.since(&l.stream.begun, m, now)
	}
	s := estimate.Took(estimate.StepTime, estimate.Work{}, token, now)
	s.Load, s.Elsewhere = was.Load, m.remote.Rho
	s.Beside = was.Held / float64(tokens)
	k.of(m).Learn(&m.learned, s)
}

// unseen adds the prompt of l to its replica's computed work. The prompt should be computed by now,
// although its end cannot be observed. It made the steps of other requests longer. The steps of l came after
// it.
func (k *lessons) unseen(l *Lease) {
	if m := l.member; l.entry.Local {
		from := l.pieces.Prefix.Tokens()
		m.learned.Unseen(&l.stream.begun, l.entry.Tokens-from, from)
	}
}
