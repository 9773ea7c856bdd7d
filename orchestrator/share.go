package orchestrator

import "time"

// claimOf returns the claim of a job. What has begun comes before all classes.
func claimOf(j *job) (c claim) {
	c.order = j.flow
	if j.origin.class == nil || j.begun() {
		return c
	}
	c.order.Rank = j.origin.class.Rank
	goal := j.goals.TTFT
	if goal == 0 {
		goal = j.goals.Deadline
	}
	if goal > 0 {
		c.due = j.rec.Time.Add(goal)
	}
	return c
}

// readyToTry tells the plan of a job what has changed since the last try.
func readyToTry(j *job, now time.Time) {
	j.plan.Waited, j.plan.Begun = now.Sub(j.rec.Time), j.begun()
	j.plan.FirstBy = j.firstTokenBy()
	j.plan.MostAhead = j.queue.bound(claimOf(j).order)
}

// promptComputed tells the queue that the prompt of a job has been computed. Where shares are kept, a request
// may wait until less work is ahead of its prompt.
func promptComputed(j *job) {
	if j.key != nil && j.key.Weight > 0 {
		j.wake()
	}
}
