package orchestrator

import (
	"cmp"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
)

// Why nobody went on with a stream that broke off, in its record and in the log. Beside these there are
// tooOften, noBudget, diverged and nobody, which are outcomes of trying, and what
// [openai.Delivered.Resumable] says.
const (
	continueOff    = "off"            // retry.continue
	continueGreedy = "sampled"        // and retry.continue is greedy
	continueAPI    = "api"            // its events are not known well enough
	continueMember = "request"        // something that it asks for, or a field that is not known
	continueWhole  = "whole"          // it was passed on as it came
	engineRefused  = "refused"        // by an event of its engine, with a status below 500
	nothingLeft    = "nothing_left"   // of the answer but how it ended
	eventTooLong   = "event_too_long" // the one that ended it
)

// continuation returns what another engine has to know to go on with the job's answer, or why none will.
func (j *job) continuation() (want openai.Continuation, why string) {
	mode := j.q.snap.cfg.Retry.Continue
	if mode == config.ContinueOff {
		return want, continueOff
	}
	want, why = j.req.Continuation() // names a field, which may be of the client's own making
	switch kind := j.req.Kind; {
	case why != "" && kind != openai.Completions && kind != openai.Chat:
		return want, continueAPI
	case why != "":
		return want, continueMember
	case !want.Greedy && mode != config.ContinueAlways:
		return want, continueGreedy
	}
	return want, ""
}

// notContinued notes why nobody goes on with the answer. The first reason stays.
func (a *answer) notContinued(why string) {
	rec := a.h.j.first().rec
	rec.NotContinued = cmp.Or(rec.NotContinued, why)
}

// whyNot is the reason where letting another engine go on came to this outcome, "" where none is to be told.
func (a *answer) whyNot(outcome string, f *failure) string {
	switch {
	case outcome == wentOn, outcome == wasComplete, outcome == clientLeft:
		return ""
	case outcome == notPossible && f == nil:
		return a.given.Resumable()
	case outcome == notPossible && f.kind == kindNothingLeft:
		return nothingLeft
	}
	return outcome
}

// ownError notes that the engine's own error event goes through, with which nobody goes on.
func (a *answer) ownError() {
	if a.end.bad.owner() == ownerClient {
		return
	}
	why := engineRefused
	if a.given == nil {
		_, why = a.h.j.first().continuation()
	}
	a.notContinued(why)
	a.end.bad = a.end.bad.withNotContinued(a.h.j.first().rec.NotContinued)
}
