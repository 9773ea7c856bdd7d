package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// notAdmitted explains why a request left the queue without a plan.
func notAdmitted(ctx context.Context, queued, planned error) *failure {
	if ctx.Err() != nil {
		return goneFailure(ctx, site{phase: phaseQueue})
	}
	s := site{phase: phaseQueue, err: planned} // names replicas, so it is only for the log
	if full, ok := errors.AsType[*planner.NoRoom](planned); ok {
		s.retryAfter = full.Retry
	}
	switch {
	case errors.Is(queued, errQueueFull):
		return refuse(kindQueueFull, s)
	case errors.Is(queued, errDraining):
		s.words = failureTable[kindStopped].words
		return refuse(kindDraining, s)
	}
	return refuse(kindQueueTimeout, s)
}

// noPlan explains why no plan is possible at all. alias is the name that led to the model; "" for none. A
// model that the operator names in an alias exists.
func noPlan(of *fleet.Fleet, plan *planner.Request, alias string, err error) *failure {
	s := site{phase: phasePlan, err: err}
	var none *planner.NoReplica
	var late *planner.TooLate
	switch {
	case errors.As(err, &none) && none.TooLarge:
		s.words = tooLarge(of, plan)
		return refuse(kindTooLarge, s)
	case alias == "" && !serves(of, plan.Model):
		s.words = "The model `" + plan.Model + "` does not exist. Served here: " + servedHere(of) + "."
		return refuse(kindUnknownModel, s)
	case errors.As(err, &late):
		s.retryAfter = late.Retry()
		s.words = fmt.Sprintf("The first token would come %v after the request, later than the %v that the router "+
			"allows for it.", late.Predicted.Round(time.Millisecond), late.Limit)
		return refuse(kindTooLate, s)
	case errors.As(err, &none):
		if s.words = noneIn(of, none.Pool, plan.Model); none.Draining {
			s.words += " A replica that could serve it is being drained."
		}
		return refuse(kindNoReplica, s)
	}
	return refuse(kindNoPlan, s)
}

// unsplit returns the failure of a request that no engine may serve whole. why is the reason why it is not
// split; "" if its path is never split.
func unsplit(why string) *failure {
	s := site{phase: phasePlan}
	if why != "" {
		s.words = failureTable[kindUnsplit].words + " This one is not split: " + why + "."
	}
	return refuse(kindUnsplit, s)
}

// tooLarge says why the prompt fits on no replica. If the model's context is too short, it uses vLLM's words,
// because clients look for them.
func tooLarge(of *fleet.Fleet, plan *planner.Request) string {
	most := 0
	for _, r := range of.Endpoints() {
		if r.Member.Role == replica.Decode && r.Member.Serves(plan.Model) { // no plan is without one
			most = max(most, r.Member.Facts.MaxModelLen)
		}
	}
	if most == 0 || plan.Tokens < most {
		return "The prompt is longer than any replica can hold."
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, your prompt contains %d "+
		"input tokens. "+
		"Please reduce the length of the input prompt.", most, plan.Tokens)
}
