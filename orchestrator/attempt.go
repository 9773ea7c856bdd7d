package orchestrator

import (
	"context"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// answerJob runs the job until the generating engine has begun a good answer: its status is 200, and a stream
// has its first content. The caller must close the answer. Failed attempts are repeated on other replicas as
// long as the retry rules allow.
func answerJob(ctx context.Context, j *job) (*answer, *failure) {
	if f := j.tokenize(ctx); f != nil {
		return nil, f
	}
	if f := recount(j); f != nil {
		return nil, f
	}
	j.follow()
	j.prepare()
	return tryJob(ctx, j)
}

// tryJob makes attempts until one begins well, or until another attempt would not help.
func tryJob(ctx context.Context, j *job) (*answer, *failure) {
	var first *failure
	for {
		j.attempts.tries++
		j.rec.Attempts = j.attempts.tries
		a, f := attemptOnce(ctx, j)
		switch {
		case f == nil:
			j.ownFaults()
			return a, nil
		case first != nil && first.tells() && f.phase == phasePlan:
			// No other replica is left: the client gets what an engine said or did.
			j.lost()
			j.rec.Attempts--
			return nil, first.withNotRetried(retryNobody)
		}
		first = f
		if f.at != "" {
			j.fleet.Failed(f.at, f.err)
		}
		if f.forgotten() {
			j.fleet.ModelUnknown(f.at)
		}
		if again, why := j.again(ctx, f); !again {
			j.lost()
			return nil, f.withNotRetried(why).heard(ctx)
		}
		j.retried(f)
	}
}

// attemptOnce plans, waits for room if it must, and sends the legs.
func attemptOnce(ctx context.Context, j *job) (a *answer, f *failure) {
	b, f := j.book(ctx)
	if f != nil {
		return nil, f
	}
	if batch := j.of.batch; batch != nil {
		batch.begun.Store(true)
	}
	h := &handoff{j: j, b: b, attemptID: j.rec.ID}
	defer func() {
		if a == nil { // after a panic, leases must end too
			h.end()
		}
	}()
	recordPlan(j, b)
	if j.attempts.tries > 1 {
		h.attemptID += "-r" + strconv.Itoa(j.attempts.tries-1)
	}
	began := time.Now()
	a, f = h.run(ctx)
	if f = j.orStale(ctx, f); f == nil {
		return a, nil
	}
	if f.kind != kindStale {
		j.attempts.faults = append(j.attempts.faults, j.failedOn(b, f, j.fingerprint(), j.start, began))
	}
	if b.Stored() > 0 { // perhaps because of the store: the next attempt prefills
		j.planner.Store().Gave(&j.plan, planner.Report{Alone: true}, time.Now())
	}
	noteFailed(j.first().rec, b, f, j.start, began)
	return nil, f
}
