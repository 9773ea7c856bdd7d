package orchestrator

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
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

// mayGoOn counts the request among those that are tried again, unless the replica is known to be bad or does
// not work any more: then going on elsewhere multiplies no work, however many streams it had.
func mayGoOn(ctx context.Context, j *job, blamed planner.FailedAttempt) bool {
	to := j.fleet.Endpoint(blamed.Booking.Decode.ID)
	return to == nil || !to.Up() || blamed.KnownBad(time.Now()) ||
		j.takeBudget() || j.dead(ctx, to)
}

// avoidForRest keeps the job of a rest from replicas that would begin the answer anew, and from the one where
// it broke off, if there is another.
func avoidForRest(j *job, broken replica.ID) {
	// No other one carries the ids of a chat.
	if j.req.Kind != openai.Completions && j.connect.Traits().Order != connector.Sequential {
		j.plan.SplitOK = false
	}
	for id, r := range j.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && !j.goesOnAt(&r.Member) {
			j.plan.AvoidDecode = append(j.plan.AvoidDecode, id)
		}
	}
	j.attempts.avoid(&j.plan, broken, replica.Decode, true) // it may be asked again where it is the last
	j.attempts.failedWhen, j.attempts.failedAt = phaseDecode, broken
}

// beginRest runs the job of a rest until its answer has begun well, or until that has taken as long as a
// first token may.
func beginRest(ctx context.Context, j *job) (*answer, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	clock := time.AfterFunc(j.cfg.Timeouts.DecodeFirst, func() { cancel(errRestLate) })
	defer clock.Stop()
	a, f := tryJob(ctx, j)
	if f != nil {
		cancel(nil)
	}
	return a, f
}
