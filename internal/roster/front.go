package roster

import "time"

// Front is the prompt that a replica computes first: the earliest booked of the prompts that one router, or
// several, have booked on it. The zero Front has no prompt.
//
// Each of several routers has a first prompt of its own, but a replica computes one prompt after the other.
// If all first prompts counted as running, the work ahead would seem to pass faster, by a factor of the
// number of routers.
type Front struct {
	Work     time.Duration // predicted for the prompt, 0 without a prompt
	At       time.Time     // when it was booked
	Ended    time.Time     // when one before it was done or given up, zero for never
	Answered time.Time     // when any prompt was answered, zero for never: the replica goes on
}

// With returns the Front of two routers that book on the same replica.
func (f Front) With(o Front) Front {
	if o.Work > 0 && (f.Work == 0 || o.At.Before(f.At)) {
		f.Work, f.At = o.Work, o.At
	}
	if o.Ended.After(f.Ended) {
		f.Ended = o.Ended
	}
	if o.Answered.After(f.Answered) {
		f.Answered = o.Answered
	}
	return f
}

// Ran returns how much of the prompt's work should be done. The replica can have begun the prompt when it
// was booked and all earlier prompts were done.
func (f Front) Ran(now time.Time) time.Duration { return min(f.Work, f.since(now)) }

// since is the time for which the replica can have worked on the prompt.
func (f Front) since(now time.Time) time.Duration {
	begun := f.At
	if f.Ended.After(begun) {
		begun = f.Ended
	}
	return max(0, now.Sub(begun))
}

// Overdue returns for how long the prompt should have been done. If other prompts were answered since, it
// returns for how long the next answer should have come. It returns 0 where the delay may be an error of the
// prediction: up to the predicted time again, and at least a second. A replica that is later than this
// stands still or does other work. The best guess of how long this will last is how long it has lasted. A
// prompt that an engine passes over (its grammar is not ready, its blocks come from elsewhere) says nothing
// about others.
func (f Front) Overdue(now time.Time) time.Duration {
	since := f.since(now)
	if !f.Answered.IsZero() {
		since = min(since, now.Sub(f.Answered))
	}
	late := since - f.Work
	if f.Work == 0 || late <= max(f.Work, leastOverdue) {
		return 0
	}
	return late
}

const leastOverdue = time.Second

// Running is a Front as a router reports it to others, beside the remaining work by its own account.
type Running struct {
	Work     time.Duration `json:"work_ns,omitzero"`     // predicted, for the whole prompt
	Ran      time.Duration `json:"ran_ns,omitzero"`      // part of Work that is not in the remaining work
	Age      time.Duration `json:"age_ns,omitzero"`      // since it was booked
	Ended    time.Duration `json:"ended_ns,omitzero"`    // since a prompt before it was done, 0 for never
	Answered time.Duration `json:"answered_ns,omitzero"` // since any was answered, 0 for never

	front Front
}

// RunningOf returns the reportable part of f.
func RunningOf(f Front, now time.Time) Running {
	var r Running
	if f.Work > 0 {
		r = Running{Work: f.Work, Ran: f.Ran(now), Age: now.Sub(f.At)}
	}
	if !f.Ended.IsZero() {
		r.Ended = max(1, now.Sub(f.Ended))
	}
	if !f.Answered.IsZero() {
		r.Answered = max(1, now.Sub(f.Answered))
	}
	return r.Plausible()
}

// Plausible returns r with each number as far as it can be.
func (r Running) Plausible() Running {
	return Running{
		Work: Work(r.Work), Ran: Work(r.Ran), Age: Work(r.Age), Ended: Work(r.Ended),
		Answered: Work(r.Answered), front: r.front,
	}
}

// Heard notes the time of the report r, from which its ages are counted.
func (r *Running) Heard(now time.Time) {
	r.front = Front{}
	if r.Work > 0 {
		r.front.Work, r.front.At = r.Work, now.Add(-r.Age)
	}
	if r.Ended > 0 {
		r.front.Ended = now.Add(-r.Ended)
	}
	if r.Answered > 0 {
		r.front.Answered = now.Add(-r.Answered)
	}
}

// Join adds another router's report, after [Running.Heard].
func (r *Running) Join(o *Running) {
	r.Ran += o.Ran
	r.front = r.front.With(o.front)
}

// Any reports whether a router has reported a prompt that it waits for.
func (r *Running) Any() bool { return r.front.Work > 0 }

// Reported tells whether a router has reported a running or a finished prompt.
func (r *Running) Reported() bool {
	return r.Any() || !r.front.Ended.IsZero() || !r.front.Answered.IsZero()
}

// EndedAfter reports whether a prompt of another router was answered or given up after t, by its report.
func (r *Running) EndedAfter(t time.Time) bool {
	return r.front.Ended.After(t) || r.front.Answered.After(t)
}

// Overdue is [Front.Overdue] of the first prompt of all routers; own is the first of this one's.
func (r *Running) Overdue(own Front, now time.Time) time.Duration {
	return own.With(r.front).Overdue(now)
}

// Left returns the time until all prompts are done. work is the work of this router's prompts, and own is
// the first prompt. others is the work left of the other routers' prompts, each by its router's account. r
// is the sum over the other routers.
func (r *Running) Left(work, others time.Duration, own Front, now time.Time) time.Duration {
	return max(0, work+others+r.Ran-own.With(r.front).Ran(now))
}
