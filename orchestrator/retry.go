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

// again decides whether a failed attempt is repeated. It is never repeated after a client error, and only
// within the limits of attempts and of the retry budget. After two different replicas failed in the same
// phase, the request itself is the likely cause, and is not tried again. There are two exceptions. The second
// replica is ejected because it fails other requests too. Or an engine itself reported the failure, so that
// it lives and a third can decide. A failed prefill costs the client no answer if a decode replica may
// compute the prompt.
//
// whyNot is the reason if another replica might have done better, else "".
func (j *job) again(ctx context.Context, f *failure) (retry bool, whyNot string) {
	bad, out, likeBefore := j.attempts.faults.Judged()
	second := j.attempts.failedWhen == f.phase && j.attempts.failedAt != f.at && f.opines() && !bad
	// A client that has left gets no second opinion.
	if second && likeBefore && !f.answered() || ctx.Err() != nil {
		j.excuse(ctx.Err() == nil)
	}
	if !f.mayRetry() || ctx.Err() != nil {
		return false, ""
	}
	if j.attempts.tries >= j.cfg.Retry.Attempts {
		return false, retryAttempts
	}
	if f.unlucky() || j.pulledInVain(f) {
		return true, ""
	}
	alone := j.fallsBack(f, second)
	if second && !alone && !f.answered() {
		return false, retrySame
	}
	j.attempts.avoidFailed(&j.plan, f)
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
	if (f.row().alone || alone) && !j.connect.Traits().NoPlain {
		j.plan.SplitOK, j.plan.LocalOK = false, true
	}
	return true, ""
}

// pulledInVain reports whether f is the failure of an engine from which a leg pulled blocks. Neither the
// request nor its replicas have failed then. The job avoids the engine, and pulls nothing more: another
// source may stand still, too.
func (j *job) pulledInVain(f *failure) bool {
	if f.kind != kindSource {
		return false
	}
	j.attempts.avoidFailed(&j.plan, f)
	j.plan.Pulls = false
	return true
}

// retried counts and logs a failure after which the job is tried again.
func (j *job) retried(f *failure) {
	j.m.Failures.Retries.WithLabelValues(string(f.phase)).Inc()
	j.log.Info("trying again elsewhere", "id", j.rec.ID, "phase", string(f.phase), "replica", string(f.at),
		"kind", f.name(), "status", f.reply.status, "error", f.cause())
}

// takeBudget takes a place in the retry budget for the request, at most once. It returns false if the budget
// is spent. A retry costs nothing and needs no place if no engine has worked for it: see [failure.harmless].
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
	// net/http ends this context when the handler returns.
	context.AfterFunc(j.r.Context(), func() { j.retrying.Add(-1) })
	return true
}

// verdictWait is how long a request without a place in the retry budget waits for the ejection of the
// replica that failed it. A replica that begins to fail fails many requests within the time of one failure,
// so the verdict comes soon.
const verdictWait = 200 * time.Millisecond

// awaitsVerdict waits for the ejection of the replica or pair at fault in the newest attempt. After an
// ejection, another attempt adds no work to scarce replicas, and needs no budget. It reports whether the
// ejection, or a place in the budget, came. A replica that answers with another status than 500 may be
// overloaded: this case needs the budget.
func (j *job) awaitsVerdict(ctx context.Context, f *failure) bool {
	if len(j.attempts.faults) == 0 || j.mayPrefillThere(f) || f.reply.status != http.StatusInternalServerError {
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
			newest.OutNow = newest.KnownBad(now)
			if newest.OutNow || j.takeBudget() {
				return true
			}
		}
	}
	return false
}

// othersLeft reports whether there is a replica that has not failed the job yet.
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

// lost removes the failures of a job's attempts when the job ends without an answer, if the request is the
// likely cause.
func (j *job) lost() {
	if excuse, cause := j.attempts.faults.Lost(); excuse {
		j.excuse(cause)
	}
}

// fallsBack reports whether a decode replica must compute the prompt itself after f: the prefill gave no
// blocks to hand over, or it failed twice. After two broken connections the request may have killed two
// engines, so it gets no third.
func (j *job) fallsBack(f *failure, second bool) bool {
	if !j.mayPrefillThere(f) {
		return false
	}
	kind, _ := f.outlierKind()
	return kind == outlier.Unusable || second && kind != outlier.Broken
}

// engineEnded reports whether the connection broke off because its engine has ended. Then another attempt
// adds no work.
func (j *job) engineEnded(ctx context.Context, f *failure) bool {
	to := j.fleet.Endpoint(f.at)
	return f.kind == kindBroken && (to == nil || j.dead(ctx, to))
}

// mayPrefillThere reports whether f is a failure of the prefill side, so that a decode replica may compute
// the prompt.
func (j *job) mayPrefillThere(f *failure) bool {
	return f.phase == phasePrefill && j.plan.SplitOK && j.cfg.Local != config.LocalNever
}

// ownFaults records that a request which failed before has begun well on other replicas: the failed replicas
// are the cause.
func (j *job) ownFaults() {
	j.attempts.faults.Own(time.Now())
	j.attempts.faults = nil
}

// excuse removes the failures of a job's attempts: the request is the cause, or the cause is unknown.
func (j *job) excuse(cause bool) {
	j.trials.Announce(j.attempts.faults.Excuse(cause, time.Now()))
	j.attempts.faults = nil
}
