package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// notAdmitted explains why a request left the queue without a plan.
func (j *job) notAdmitted(ctx context.Context, queued, planned error) *failure {
	if ctx.Err() != nil {
		return goneFailure(ctx, site{phase: phaseQueue})
	}
	s := site{phase: phaseQueue, err: planned} // names replicas, which is for the log
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

// noPlan explains why no plan is possible at all.
func (j *job) noPlan(err error) *failure {
	s := site{phase: phasePlan, err: err}
	var none *planner.NoReplica
	var late *planner.TooLate
	switch {
	case errors.As(err, &none) && none.TooLarge:
		s.words = j.tooLarge()
		return refuse(kindTooLarge, s)
	case !j.serves(j.plan.Model):
		s.words = "The model `" + j.plan.Model + "` does not exist. Served here: " + j.servedHere() + "."
		return refuse(kindUnknownModel, s)
	case errors.As(err, &late):
		s.retryAfter = late.Retry()
		return refuse(kindTooLate, s)
	case errors.As(err, &none):
		if s.words = j.noneIn(none.Pool, j.plan.Model); none.Draining {
			s.words += " A replica that could serve it is being drained."
		}
		return refuse(kindNoReplica, s)
	}
	return refuse(kindNoPlan, s)
}

// tooLarge says why the prompt fits nowhere: in vLLM's words where the model's context is too short, since
// clients look for them.
func (j *job) tooLarge() string {
	most := 0
	for _, r := range j.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && r.Member.Serves(j.plan.Model) { // no plan is without one
			most = max(most, r.Member.Facts.MaxModelLen)
		}
	}
	if most == 0 || j.plan.Tokens < most {
		return "The prompt is longer than any replica can hold."
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, your prompt contains %d "+
		"input tokens. "+
		"Please reduce the length of the input prompt.", most, j.plan.Tokens)
}

// servedHere names the models that a client may ask for, the first few of many.
func (e *env) servedHere() string {
	var names []string
	for _, e := range e.fleet.Endpoints() {
		names = append(names, e.Member.Facts.Models...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 8
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// noneIn says why a pool has no replica for a request of model. Names of replicas, which may be addresses,
// are for the log alone.
func (e *env) noneIn(pool, model string) string {
	if pool == "pair" {
		return "No prefill and decode replica for the model `" + model + "` can work together on this request."
	}
	var all, up, serve, both int
	for _, w := range e.fleet.Watchers() {
		if w.Role().String() != pool {
			continue
		}
		serves := slices.ContainsFunc(w.Members(), func(m replica.Replica) bool { return m.Serves(model) })
		all++
		if w.Up() {
			up++
		}
		if serves {
			serve++
		}
		if serves && w.Up() {
			both++
		}
	}
	switch {
	case all == 0:
		return "The " + pool + " pool has no replicas."
	case up == 0:
		return every(all, pool, "") + " is unreachable."
	case serve == 0:
		return "The model `" + model + "` is served by no " + pool + " replica."
	case both == 0:
		return every(serve, pool, model) + " is unreachable."
	}
	return every(both, pool, model) + " and can be reached is ejected, asleep, drained, or was tried for this " +
		"request already."
}

// every names n replicas, which are all of a pool, or all of those that serve a model, "" for any.
func every(n int, pool, model string) string {
	text := "The only " + pool + " replica"
	if n > 1 {
		text = fmt.Sprintf("Each of the %d %s replicas", n, pool)
	}
	switch {
	case model == "":
		return text
	case n > 1:
		return text + " that serve the model `" + model + "`"
	}
	return text + " that serves the model `" + model + "`"
}

// serves reports whether some known replica, healthy or not, answers for model; true while nothing is known.
func (e *env) serves(model string) bool {
	known := e.fleet.Endpoints()
	for _, r := range known {
		if r.Member.Serves(model) {
			return true
		}
	}
	return len(known) == 0
}
