package orchestrator

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A stream whose engine dies behind the first content is not over: the prompt's tokens and those of the
// answer so far are the prompt of a request to another engine, planned like every other, whose answer is the
// rest. The client sees a pause.
//
// The job of the rest is one of its own, with the rest of the limits and a booking of its own. Its answer
// takes the place of the one that broke off.

// mostContinued is how often one answer goes on elsewhere: a request that ends engines must not end many.
const mostContinued = 3

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
	mode := j.cfg.Retry.Continue
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

// follow has the tokens of the job's answer kept, where the configuration and the request allow that another
// engine goes on with it.
func (j *job) follow() {
	if want, why := j.continuation(); why == "" {
		kept := want // memory for those alone who need it
		j.want = &kept
	}
}

// given begins the record of what the client gets of one attempt's answer; nil where nobody will go on with
// it.
func (j *job) given() *openai.Delivered {
	switch {
	case j.rest.delivered != nil:
		return j.rest.delivered.Clone()
	case j.want != nil:
		return openai.NewDelivered(j.req.Kind, *j.want)
	}
	return nil
}

// askIDs asks the engine for the token ids that the record needs. The client does not see them unless it
// asked too.
func (j *job) askIDs(body *openai.Edit) *openai.Edit {
	if j.want != nil && !j.want.ReturnIDs {
		body.Set("return_token_ids", []byte("true"))
	}
	return body
}

// first is the client's own job, of which this may do the rest.
func (j *job) first() *job {
	if j.rest.root != nil {
		return j.rest.root
	}
	return j
}

// Outcomes of streams that broke off.
const (
	wentOn      = "continued"
	wasComplete = "complete"     // but for the end marker
	notPossible = "not_possible" // the answer cannot be split here
	tooOften    = "too_often"
	noBudget    = "no_budget"
	diverged    = "diverged"
	nobody      = "failed"
	clientLeft  = "client_gone"
)

// mayGoOn counts the request among those that are tried again, unless the replica is known to be bad or does
// not work any more: then going on elsewhere multiplies no work, however many streams it had.
func (j *job) mayGoOn(ctx context.Context, blamed planner.FailedAttempt) bool {
	to := j.fleet.Endpoint(blamed.Booking.Decode.ID)
	return to == nil || !to.Up() || j.planner.KnownBad(blamed.Booking, blamed.Fault, time.Now()) ||
		j.takeBudget() || j.dead(ctx, to)
}

// dead asks an engine whether it still works.
func (e *env) dead(ctx context.Context, to *fleet.Endpoint) bool {
	err := to.Works(ctx)
	e.fleet.Failed(to.Member.ID, err)
	return err != nil
}

// avoidForRest keeps the job of a rest from replicas that would begin the answer anew, and from the one where
// it broke off, if there is another.
func (j *job) avoidForRest(broken replica.ID) {
	// No other carries the ids of a chat.
	if j.req.Kind != openai.Completions && j.connect.Order() != connector.Sequential {
		j.plan.SplitOK = false
	}
	for id, r := range j.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && !j.goesOnAt(&r.Member) {
			j.plan.AvoidDecode = append(j.plan.AvoidDecode, id)
		}
	}
	j.avoid(broken, replica.Decode, true) // it may be asked again where it is the last
	j.attempts.failedWhen, j.attempts.failedAt = phaseDecode, broken
}

// begin runs the job of a rest until its answer has begun well, or until that has taken as long as a first
// token may.
func (j *job) begin(ctx context.Context) (*answer, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	clock := time.AfterFunc(j.cfg.Timeouts.DecodeFirst, func() { cancel(errRestLate) })
	defer clock.Stop()
	a, f := j.try(ctx)
	if f != nil {
		cancel(nil)
	}
	return a, f
}

// goesOnAt reports whether the token ids of a rest mean to a decode replica what they meant where they were
// made, whether it takes them, and whether it has the weights that the answer was begun with.
func (j *job) goesOnAt(d *replica.Replica) bool {
	other := j.rest.began != nil && planner.OtherWeights(j.rest.began, d, j.req.Model) != ""
	return reuses(&d.Facts, j.req.Kind) && j.ids.legs(d) != nil && !other
}
