package decode

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// This file is what streams under way say of the speed of their replica. Else an answer tells at its end
// alone: on a replica that has become twenty times slower it comes twenty times later, and takes others
// to be believed.
//
// A stream is cut into windows, each from a read of some of its events to a read of others. What is
// learned of them is that a replica has become much slower than it is taken to be, and that this is over.
// Nothing finer is: how many tokens an event has is an estimate, and windows leave out the time in which
// a replica computes prompts, which answers do not.

// Progress is how far a stream has come.
type Progress struct {
	Events int           // that were read, of all sequences together
	Tokens int           // that they have, as [Lease.Finish] will be told, 0 not known yet
	Held   time.Duration // for which whoever reads them has kept the engine waiting
}

// ProgressEvery is how often it is worth telling of the progress of a stream.
const ProgressEvery = 250 * time.Millisecond

// A window is as long as ProgressEvery and windowSteps steps at least. A replica has become slower when
// slowRun windows one after the other were each slowWindow times as long as its steps should make them,
// at the most that its load can explain.
const (
	windowSteps = 2
	slowWindow  = 2
	slowRun     = 3

	slopesOff = 3   // times more may a sequence or a token in the cache cost than was learned under less load
	heldUp    = 0.1 // of a window that its reader has kept the engine waiting tells nothing of the engine
	// Of other routers' local prefills only the share of time is known, and that late.
	peersPrefill = 0.02

	usedUp     = 0.95 // of its blocks in use: then an engine takes them from who runs, and computes these again
	tokensKeep = 0.8  // of what is taken for the tokens of an event stays when an answer tells of them
)

// window is the part of a stream that was read since a time, zero where none has begun.
type window struct {
	at   time.Time
	from Progress
	late bool // the one before was held up, so that what has queued up meanwhile comes in this one
	done decoded
	// Seconds in which the replica had posted reads by then.
	posted float64
}

// pace is what the streams of one replica say together. Windows that overlap in time are of one moment.
type pace struct {
	run    [slowRun]estimate.Sample // windows of moments one after the other that were too long, or too short
	n      int                      // how many those are
	until  time.Time                // the end of the newest
	surest float64                  // by which factor the newest was off
	faster bool                     // they are of a replica that is faster than it is taken to be
	slowed bool                     // what was learned last is that it has become slower
	tokens float64                  // of an event, by answers that ended; 0 unknown
}

// Progress tells how far l's answer has come. The time is that of the read. It is to be called when
// events were read, and need not be more often than each [ProgressEvery]. Safe for concurrent use. On nil
// it does nothing.
func (l *Lease) Progress(to Progress, now time.Time) {
	if l == nil || l.sequences > 1 { // of several answers in one stream some end before the others
		return
	}
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.state == ended || l.prompt.state != answered || l.stream.unseenArrival > 0 {
		return
	}
	l.member.measured.streams.learnTokens(to)
	w := l.stream.window
	tokens := l.member.measured.streams.tokens // of another engine they may be others: its flags differ
	steps := float64(to.Events-w.from.Events) * tokens
	took, held := now.Sub(w.at), to.Held-w.from.Held
	done, posted := p.decodedUntil(l.member, now), l.member.measured.posted
	switch {
	case w.at.IsZero() || tokens == 0 || p.interferes(l.member, w.at, now):
		l.stream.window = window{at: now, from: to, done: done, posted: posted}
	case took < ProgressEvery || steps < windowSteps:
	case held.Seconds() > heldUp*took.Seconds():
		l.stream.window = window{at: now, from: to, late: true, done: done, posted: posted}
	default:
		l.stream.window = window{at: now, from: to, done: done, posted: posted}
		if !w.late {
			own := max(0, took.Seconds()-(posted-w.posted))
			p.learnWindow(l.member, w.at, done.since(&w.done), own/steps, now)
		}
	}
}

// interferes reports whether something else than decode steps may have taken a replica's time since then:
// prompts that it computes for whomever, or again since it had run out of blocks.
func (p *Pool) interferes(m *member, since, now time.Time) bool {
	usage := m.load.Read(now, p.settings.LoadTTL).Usage // NaN where nobody knows
	return !m.prefillsNothing() || !m.ledger.local.done.Before(since) || m.ledger.others.Count > 0 ||
		m.remote.Rho > peersPrefill || !(usage <= usedUp)
}

// learnTokens takes in what an answer says of how many tokens an event has: of drafts that were accepted,
// or of an engine that sends an event for several tokens, one has more than one.
func (g *pace) learnTokens(to Progress) {
	if to.Tokens == 0 || to.Events < minSteps {
		return
	}
	tokens := float64(to.Tokens) / float64(to.Events)
	g.tokens = tokensKeep*cmp.Or(g.tokens, tokens) + (1-tokensKeep)*tokens
}

// recovered takes in that an answer ended, whose steps s is. A replica that stands
// still for a moment is slow for it, but nothing makes a slow one quick: one answer tells that it is not
// any more.
func (g *pace) recovered(steps *estimate.DecayingFit, s estimate.Sample) {
	if g.slowed && s.Low*slowWindow < steps.Expects(s.Work) {
		g.slowed, g.n = false, 0
		steps.LearnRun(slices.Repeat([]estimate.Sample{s}, slowRun), s.At)
	}
}

// learnWindow takes in that each step of a window that began then, and in which there was that to decode on
// average, took so many seconds.
func (p *Pool) learnWindow(m *member, from time.Time, was stepLoad, step float64, now time.Time) {
	most := max(float64(m.batch()), was.sequences, 1)
	batch, kv := int(most), int(max(m.reads(most), was.tokens))
	is := p.speed(m)
	expected := is.Step(batch, kv)
	g, faster := &m.measured.streams, step < expected
	surprise := expected / step
	if !faster {
		surprise = step / (expected + (slopesOff-1)*(expected-is.D0))
	}
	work := estimate.DefaultSpeed().StepParts(float64(batch), float64(kv))
	window := estimate.Took(estimate.WindowTime, work, step, now)
	switch {
	case surprise < slowWindow || faster && !g.slowed:
		g.n = 0
	case g.n > 0 && faster == g.faster && from.Before(g.until):
		if surprise < g.surest {
			g.run[g.n-1], g.surest = window, surprise
		}
	default:
		if faster != g.faster {
			g.n = 0
		}
		g.run[g.n], g.surest = window, surprise
		g.faster, g.until = faster, now
		if g.n++; g.n == slowRun {
			m.measured.steps.LearnRun(g.run[:], now)
			g.n, g.slowed = 0, !faster
		}
	}
}
