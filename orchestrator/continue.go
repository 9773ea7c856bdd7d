package orchestrator

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// If an engine dies after the first content of a stream, another engine can continue. The prompt and the
// tokens of the answer so far become the prompt of a new request. This request is planned like every other,
// and its answer is the rest. The client sees a pause.
//
// The rest has its own job, with the rest of the limits and its own booking. Its answer replaces the one that
// broke off.

// mostContinued limits how often one answer continues on another engine: a request that kills engines must
// not kill many.
const mostContinued = 3

// mayGoOn reports whether the answer may continue, and takes a place in the retry budget. No place is needed
// if the replica is known to be bad or does not work any more: then continuing adds no work, for any number
// of streams.
func mayGoOn(ctx context.Context, j *job, blamed planner.FailedAttempt) bool {
	to := j.fleet.Endpoint(blamed.Booking.Decode.ID)
	return to == nil || !to.Up() || blamed.KnownBad(time.Now()) ||
		j.takeBudget() || j.dead(ctx, to)
}

// avoidForRest makes the job of a rest avoid replicas that would start the answer again. It also avoids the
// replica where the answer broke off, if there is another.
func avoidForRest(j *job, broken replica.ID) {
	// Only a sequential connector carries the ids of a chat.
	if j.req.Kind != openai.Completions && j.connect.Traits().Order != connector.Sequential {
		j.plan.SplitOK = false
	}
	for id, r := range j.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && !j.goesOnAt(&r.Member) {
			j.plan.AvoidDecode = append(j.plan.AvoidDecode, id)
		}
	}
	j.attempts.avoid(&j.plan, broken, replica.Decode, true) // the last replica may be asked again
	j.attempts.failedWhen, j.attempts.failedAt = phaseDecode, broken
}

// beginRest runs the job of a rest until its answer has begun well, or until it has taken as long as a first
// token may.
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
