package estimate

import (
	"cmp"
	"slices"
	"time"
)

// This file learns from running streams how fast their replica is. An answer teaches only at its end. On a
// replica that became twenty times slower, the end comes twenty times later, and one answer is not enough.
//
// A stream is cut into windows, each from one read of events to another. Windows teach only that a replica
// has become much slower than its estimate, or that it is fast again. A window teaches nothing finer,
// because the tokens per event are an estimate, and because a window ignores local prompts, unlike a finished
// answer.

// Progress is how far a stream has come.
type Progress struct {
	Events int           // read events, over all sequences
	Tokens int           // their tokens, 0 if unknown
	Held   time.Duration // time in which the reader kept the engine waiting
}

// ProgressEvery is the least interval between two useful reports of a stream's progress.
const ProgressEvery = 250 * time.Millisecond

// A window lasts at least ProgressEvery and windowSteps steps. A replica has become slower when slowRun
// windows in a row each took slowFrom times as long as predicted, with the largest prediction that its
// load allows.
const (
	windowSteps = 2
	slowRun     = 3

	SlopesOff  = 3   // a sequence or a KV token may cost this many times more than was learned under less load
	heldUp     = 0.1 // a window whose reader held up the engine for a larger share says nothing about the engine
	tokensKeep = 0.8 // weight of the old tokens per event when an answer ends
)

// Window is the part of a stream that was read since a time. The zero Window has not begun.
type Window struct {
	at   time.Time
	from Progress
	late bool // the window before was held up, so its backlog arrives in this one
	done Done
}

// Since returns when w began, the zero time where it has not.
func (w *Window) Since() time.Time { return w.at }

// pace collects the windows of one replica's streams. Windows that overlap in time are of one moment.
type pace struct {
	run    [slowRun]vote // windows of consecutive moments, all too long or all too short
	n      int           // length of the run
	until  time.Time     // the end of the newest window
	surest float64       // the factor by which the newest window was off
	faster bool          // the run is of windows that were too short
	slowed bool          // the latest finding is that the replica has become slower
	tokens float64       // per event, by finished answers; 0 unknown
}

// Read takes in the progress of a stream that was read now, and the work of r until now. disturbed says that
// work other than decode steps may have taken r's time since w began. If a useful window has ended, Read
// returns a [WindowTime]: its Load is the mean load of r, and it has no Work yet.
func (r *Replica) Read(w *Window, to Progress, is Done, disturbed bool, now time.Time) (s Sample, told bool) {
	r.pace.learnTokens(to)
	was, next := *w, Window{at: now, from: to, done: is}
	tokens := r.pace.tokens // another engine may have another ratio: its flags differ
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

// learnTokens takes in how many tokens an answer had per event. The ratio is above one with accepted draft
// tokens, or on an engine that sends several tokens in an event.
func (g *pace) learnTokens(to Progress) {
	if to.Tokens == 0 || to.Events < MinSteps {
		return
	}
	tokens := float64(to.Tokens) / float64(to.Events)
	g.tokens = tokensKeep*cmp.Or(g.tokens, tokens) + (1-tokensKeep)*tokens
}

// recovered takes in the steps of a finished answer. A pause makes a replica slow for a moment, but nothing
// makes a slow replica fast. So one fast answer proves that the replica is not slow any longer.
func (g *pace) recovered(steps *DecayingFit, s Sample) {
	if g.slowed && s.Low*slowFrom < steps.Expects(s.Work) {
		g.slowed, g.n = false, 0
		steps.learnRun(slices.Repeat([]vote{{s.Work, s.Low}}, slowRun), s.At)
	}
}

// learnWindow takes in a window of a stream of r, whose estimated speed is given. The sample's Load is the
// largest that the steps can have had.
func (r *Replica) learnWindow(s Sample, is Speed) {
	expected, step := is.Step(int(s.Load.Sequences), int(s.Load.Tokens)), s.Low
	g, faster := &r.pace, step < expected
	surprise := expected / step
	if !faster {
		surprise = step / (expected + (SlopesOff-1)*(expected-is.D0))
	}
	window := vote{DefaultSpeed().StepParts(s.Load.Sequences, s.Load.Tokens), step}
	switch {
	case surprise < slowFrom || faster && !g.slowed:
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
