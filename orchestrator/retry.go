package orchestrator

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Why no attempt followed a failure that another replica might have done better, in the record and in the
// log. Beside these there is noBudget.
const (
	retryAttempts = "attempts"     // retry.attempts
	retrySame     = "same_failure" // two replicas failed in the same phase: the request is the likely cause
	retryNobody   = "no_replica"   // none is left that has not failed the request, or the next plan failed
	retryUnsafe   = "not_safe"     // a request that is passed on as it came, and may have had its effect
)

// again decides whether a failed attempt is worth another: never after a client error, within the attempts
// and the retry budget, and not when two different replicas failed in the same phase, since then the request
// itself is the likely cause. Two kinds of second failure are tried on: at a replica that is ejected since it
// fails others too, and where the engine itself said that it failed, so that it lives and a third can tell. A
// failed prefill costs no client an answer, where a decode replica may compute the prompt.
//
// whyNot is the reason where another replica might have done better, "" elsewhere.
func (j *job) again(ctx context.Context, f *failure) (retry bool, whyNot string) {
	bad, out, likeBefore := j.attempts.faults.Judged()
	second := j.attempts.failedWhen == f.phase && j.attempts.failedAt != f.at && f.opines() && !bad
	// Whom a client does not wait to see tried elsewhere has no second opinion.
	if second && likeBefore && !f.answered() || ctx.Err() != nil {
		j.excuse(ctx.Err() == nil)
	}
	if !f.mayRetry() || ctx.Err() != nil {
		return false, ""
	}
	if j.attempts.tries >= j.cfg.Retry.Attempts {
		return false, retryAttempts
	}
	if f.unlucky() {
		return true, ""
	}
	alone := j.fallsBack(f, second)
	if second && !alone && !f.answered() {
		return false, retrySame
	}
	j.avoidFailed(f)
	if j.attempts.third = second && !alone; j.attempts.third && !j.othersLeft() {
		return false, retryNobody
	}
	if !alone && !f.harmless() && !out && !j.takeBudget() && !j.engineEnded(ctx, f) && !j.awaitsVerdict(ctx, f) {
		if !j.mayPrefillThere(f) {
			return false, noBudget
		}
		alone = true
	}
	j.attempts.failedWhen, j.attempts.failedAt = f.phase, f.at
	if f.row().alone || alone {
		j.plan.SplitOK, j.plan.LocalOK = false, true
	}
	return true, ""
}

// retried counts a failure that the job is tried again for, and says so.
func (j *job) retried(f *failure) {
	j.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	j.log.Info("trying again elsewhere", "id", j.rec.ID, "phase", string(f.phase), "replica", string(f.at),
		"kind", f.name(), "status", f.answer.status, "error", f.cause())
}

// takeBudget counts the request among those that are tried again, at most once; false when there are too many
// of them already. A retry that no engine has worked for costs nothing and needs none: see
// [failure.harmless].
func (j *job) takeBudget() bool {
	j = j.first()
	if j.attempts.budgeted {
		return true
	}
	if j.retrying.Add(1) > j.retryBudget(j.cfg) {
		j.retrying.Add(-1)
		return false
	}
	j.attempts.budgeted = true
	// net/http ends that context when the handler returns.
	context.AfterFunc(j.r.Context(), func() { j.retrying.Add(-1) })
	return true
}

// verdictWait is how long a request that no place is left for in the retry budget waits for the replica where
// it failed to be ejected. One that begins to fail has failed many requests by the time that this is known,
// all of them within the time that such a failure takes.
const verdictWait = 200 * time.Millisecond

// awaitsVerdict waits for whom the newest attempt is held against to be ejected: then trying elsewhere adds
// no work to where there is too little, and needs no budget. It reports whether that came, or a place in the
// budget. Who answers with another status than 500 may be overloaded: that is what the budget is for.
func (j *job) awaitsVerdict(ctx context.Context, f *failure) bool {
	if len(j.attempts.faults) == 0 || j.mayPrefillThere(f) || f.answer.status != http.StatusInternalServerError {
		return false
	}
	newest := &j.attempts.faults[len(j.attempts.faults)-1]
	if !newest.Answered || newest.Fault.On == planner.Nobody {
		return false
	}
	look := time.NewTicker(verdictWait / 10)
	defer look.Stop()
	for range 10 {
		select {
		case <-ctx.Done():
			return false
		case now := <-look.C:
			newest.OutNow = j.planner.KnownBad(newest.Booking, newest.Fault, now)
			if newest.OutNow || j.takeBudget() {
				return true
			}
		}
	}
	return false
}

// othersLeft reports whether anybody is left to ask who has not failed the job yet.
func (j *job) othersLeft() bool {
	plan := j.plan
	plan.AvoidPrefill = slices.DeleteFunc(slices.Clone(plan.AvoidPrefill), func(id replica.ID) bool {
		return slices.ContainsFunc(j.attempts.avoided, func(a avoided) bool {
			return a.id == id && a.onlyInDoubt()
		})
	})
	_, err := j.planner.Explain(&plan, time.Now())
	return noReplica(err) == nil
}

// lost takes back what the attempts of a job that ends without an answer were held against, if the request is
// the likely cause.
func (j *job) lost() {
	if excuse, cause := j.attempts.faults.Lost(); excuse {
		j.excuse(cause)
	}
}

// fallsBack reports whether a decode replica is to compute the prompt itself after f: nothing came of the
// prefill that can be handed over, or it failed twice. A request after which two connections broke off may be
// what ended their engines: it gets no third.
func (j *job) fallsBack(f *failure, second bool) bool {
	if !j.mayPrefillThere(f) {
		return false
	}
	kind, _ := f.outlierKind()
	return kind == outlier.Unusable || second && kind != outlier.Broken
}

// engineEnded reports whether the connection broke off because its engine is not there any more: then trying
// elsewhere adds no work to it.
func (j *job) engineEnded(ctx context.Context, f *failure) bool {
	to := j.fleet.Endpoint(f.at)
	return f.kind == kindBroken && (to == nil || j.dead(ctx, to))
}

// mayPrefillThere reports whether f is a failure of the prefill side after which a decode replica may do
// without it.
func (j *job) mayPrefillThere(f *failure) bool {
	return f.phase == phasePrefill && j.plan.SplitOK && j.cfg.Local != config.LocalNever
}
