package orchestrator

import "time"

// claimOf returns the claim of a job. A job that has begun comes before all classes.
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

// readyToTry updates the plan of a job with the changes since the last try.
func readyToTry(j *job, now time.Time) {
	j.plan.Waited, j.plan.Begun = now.Sub(j.rec.Time), j.begun()
	j.plan.FirstBy = j.firstTokenBy()
	j.plan.MostAhead = j.queue.bound(claimOf(j).order)
}

// promptComputed tells the queue that the prompt of a job has been computed. If shares are kept, other
// requests may wait for this.
func promptComputed(j *job) {
	if j.key != nil && j.key.Weight > 0 {
		j.wake()
	}
}
