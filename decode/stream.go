package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
)

// This file follows a lease from its booking to its end.

// Speculate lets the index count the blocks of the prompt on l's replica before its events announce them,
// within the given time.
func (l *Lease) Speculate(within time.Duration, now time.Time) {
	if l == nil {
		return
	}
	l.pool.members.Lock()
	guess := !l.guessed && l.entry.State() != ledger.Ended
	l.guessed = true
	l.pool.members.Unlock()
	if guess {
		l.pool.Speculate(&l.member.Member, l.entry.Named, within, now)
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

// Delivered records how many tokens of the prompt the engine found in its own cache, -1 unknown, when the
// replica prefilled itself. The count corrects the assumptions about a replica without events, and says
// which blocks the events of a replica must announce.
func (l *Lease) Delivered(cached int, now time.Time) {
	if l != nil && l.entry.Local {
		l.readBack(cached, now)
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, l.entry.Matched, cached)
		l.pool.Expect(&l.member.Member, l.entry.Named, cached, now)
	}
}

func (l *Lease) readBack(cached int, now time.Time) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	p.learned.read(l, cached, now)
}

// Posts notes that l's replica reads the blocks of so many tokens from now on. Safe for concurrent use.
func (l *Lease) Posts(tokens int) {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	m := l.member
	m.learned.Posts(tokens)
}

// FirstToken records that the first token arrived, or the whole answer if the first token cannot be
// observed. It teaches the speed of a local prefill. Without events it also tells the index that the replica
// has the prompt now.
func (l *Lease) FirstToken(now time.Time) Arrival {
	if l == nil {
		return Arrival{}
	}
	x, first := l.first(now)
	if first {
		l.pool.Await(&l.member.Member, l.entry.Named, now)
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, 0, -1)
		if !l.entry.Local { // else Delivered tells more
			l.pool.Expect(&l.member.Member, l.entry.Named, -1, now)
		}
	}
	return x
}

func (l *Lease) first(now time.Time) (x Arrival, first bool) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.PromptState() == ledger.Answered || l.entry.SentAt().IsZero() {
		return Arrival{}, false
	}
	computed := l.entry.Missing()
	l.stream.meanwhile = p.learned.since(&l.stream.begun, l.member, now)
	x.Held, x.Waited = l.stream.meanwhile.Held, l.waits(now)
	if computed {
		p.learned.prefill(l, now) // what its step decoded was without its own sequences
	}
	p.arrive(l, now)
	l.member.account.Answer(&l.entry)
	if computed {
		p.learned.idle(l)
	}
	l.member.endPieces(&l.pieces, now)
	if l.entry.UnseenArrival == 0 {
		l.stream.begun = p.learned.done(l.member, now)
	}
	x.Took = l.begin(now)
	return x, true
}

// waits reports whether l waits, or may have waited, for more than its blocks. An engine that does not
// report which requests load blocks may count l as its waiting request.
func (l *Lease) waits(now time.Time) bool {
	p, m := l.pool, l.member
	if l.stream.ahead == behindOthers || l.stream.foreign || m.local.wait(now) > 0 {
		return true
	}
	return m.load.Read(now, p.settings.LoadTTL).Waiting > max(1, m.load.Fetching())
}

// Fetches reports whether l waits for nothing but its blocks: no other reason is known why its engine has
// not begun, and the engine has computed no prompt since l was sent. Safe for concurrent use.
func (l *Lease) Fetches(now time.Time) bool {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	held := p.learned.since(&l.stream.begun, l.member, now).Held
	return l.entry.State() < ledger.Ended && !l.waits(now) && held <= estimate.HandoverMost
}

// Streamed records that l's stream has brought something. The reader of the stream may call it at every
// read, without a lock. On nil it does nothing.
func (l *Lease) Streamed(now time.Time) {
	if l != nil {
		l.member.beside.Got(&l.stream.read, now)
	}
}

// Progress records how far l's answer has come, at the time of the read. Call it after a read of events, not
// more often than each [ProgressEvery]. Safe for concurrent use. On nil it does nothing.
//
// An answer teaches the speed of its replica only at its end. On a replica that became twenty times slower,
// the end comes twenty times later, and one answer is not enough. So running streams teach it, too.
func (l *Lease) Progress(to Progress, now time.Time) {
	if l == nil || l.entry.Sequences > 1 { // of several answers in one stream some end before the others
		return
	}
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.State() == ledger.Ended || l.entry.PromptState() != ledger.Answered || l.entry.UnseenArrival > 0 {
		return
	}
	m, w := l.member, &l.stream.window
	usage := m.load.Read(now, p.settings.LoadTTL).Usage // NaN where nobody knows
	done, disturbed := p.learned.done(m, now), m.disturbed(usage, w.Since())
	if s, told := m.learned.Read(w, to, done, disturbed, now); told {
		s.Load = m.mostDecoded(s.Load)
		p.learned.of(m).Learn(&m.learned, s)
	}
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
