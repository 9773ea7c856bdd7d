package estimate

import (
	"cmp"
	"slices"
	"time"
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
	Tokens int           // that they have, 0 not known yet
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

	SlopesOff  = 3   // times more may a sequence or a token in the cache cost than was learned under less load
	heldUp     = 0.1 // of a window that its reader has kept the engine waiting tells nothing of the engine
	tokensKeep = 0.8 // of what is taken for the tokens of an event stays when an answer tells of them
)

// Window is the part of a stream that was read since a time. The zero Window has not begun.
type Window struct {
	at   time.Time
	from Progress
	late bool // the one before was held up, so that what has queued up meanwhile comes in this one
	done Done
}

// Since returns when w began, the zero time where it has not.
func (w *Window) Since() time.Time { return w.at }

// pace is what the streams of one replica say together. Windows that overlap in time are of one moment.
type pace struct {
	run    [slowRun]vote // windows of moments one after the other that were too long, or too short
	n      int           // how many those are
	until  time.Time     // the end of the newest
	surest float64       // by which factor the newest was off
	faster bool          // they are of a replica that is faster than it is taken to be
	slowed bool          // what was learned last is that it has become slower
	tokens float64       // of an event, by answers that ended; 0 unknown
}

// Read takes in how far a stream has come by now, as it was read, when r had done so much. disturbed says
// that something else than decode steps may have taken r's time since w began. Where a window has ended and
// says something, Read returns a [WindowTime]: its Load is what r decoded on average, and it has no Work
// yet.
func (r *Replica) Read(w *Window, to Progress, is Done, disturbed bool, now time.Time) (s Sample, told bool) {
	r.pace.learnTokens(to)
	was, next := *w, Window{at: now, from: to, done: is}
	tokens := r.pace.tokens // of another engine they may be others: its flags differ
	steps := float64(to.Events-was.from.Events) * tokens
	took, held := now.Sub(was.at), to.Held-was.from.Held
	switch {
	case was.at.IsZero() || tokens == 0 || disturbed:
		*w = next
	case took < ProgressEvery || steps < windowSteps:
	case held.Seconds() > heldUp*took.Seconds():
		next.late = true
		*w = next
	default:
		*w = next
		own := max(0, took.Seconds()-(is.posted-was.done.posted))
		s = Took(WindowTime, Work{}, own/steps, now)
		s.Since, s.Load = was.at, is.decoded.since(&was.done.decoded)
		return s, !was.late
	}
	return s, false
}

// learnTokens takes in what an answer says of how many tokens an event has: of drafts that were accepted,
// or of an engine that sends an event for several tokens, one has more than one.
func (g *pace) learnTokens(to Progress) {
	if to.Tokens == 0 || to.Events < MinSteps {
		return
	}
	tokens := float64(to.Tokens) / float64(to.Events)
	g.tokens = tokensKeep*cmp.Or(g.tokens, tokens) + (1-tokensKeep)*tokens
}

// recovered takes in that an answer ended, whose steps s is. A replica that stands
// still for a moment is slow for it, but nothing makes a slow one quick: one answer tells that it is not
// any more.
func (g *pace) recovered(steps *DecayingFit, s Sample) {
	if g.slowed && s.Low*slowWindow < steps.Expects(s.Work) {
		g.slowed, g.n = false, 0
		steps.learnRun(slices.Repeat([]vote{{s.Work, s.Low}}, slowRun), s.At)
	}
}

// learnWindow takes in a window of a stream of r, which is taken to have that speed. The sample's Load is
// the most that its steps can have had in them.
func (r *Replica) learnWindow(s Sample, is Speed) {
	expected, step := is.Step(int(s.Load.Sequences), int(s.Load.Tokens)), s.Low
	g, faster := &r.pace, step < expected
	surprise := expected / step
	if !faster {
		surprise = step / (expected + (SlopesOff-1)*(expected-is.D0))
	}
	window := vote{DefaultSpeed().StepParts(s.Load.Sequences, s.Load.Tokens), step}
	switch {
	case surprise < slowWindow || faster && !g.slowed:
		g.n = 0
	case g.n > 0 && faster == g.faster && s.Since.Before(g.until):
		if surprise < g.surest {
			g.run[g.n-1], g.surest = window, surprise
		}
	default:
		if faster != g.faster {
			g.n = 0
		}
		g.run[g.n], g.surest = window, surprise
		g.faster, g.until = faster, s.At
		if g.n++; g.n == slowRun {
			r.Steps.learnRun(g.run[:], s.At)
			g.n, g.slowed = 0, !faster
		}
	}
}

// MinSteps is the shortest answer whose pace says something about the speed.
const MinSteps = 8
