package planner

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// FailedAttempt is a failed attempt of a request, with the facts about the replica or pair at fault.
type FailedAttempt struct {
	Booking  *Booking
	Fault    Fault
	Answered bool // the engine itself reported the failure

	OutBeforeRequest bool // ejected when the request came: the failure says nothing about the request
	OutBeforeFailure bool // ejected, by its own fault, when the attempt failed: no surprise
	OutNow           bool // ejected by now: it gets no further requests
}

// KnownBad reports whether the replica or pair at fault was ejected before the given time and has not fully
// returned since.
func (x *FailedAttempt) KnownBad(before time.Time) bool { return x.Booking.knownBad(x.Fault, before) }

// alike reports whether two attempts failed in the same way with different replicas that are not known to
// fail other requests. Then the request is the likely cause.
func (x *FailedAttempt) alike(y *FailedAttempt) bool {
	if x.OutBeforeRequest || y.OutBeforeRequest {
		return false
	}
	return x.Fault.On != Nobody && y.Fault.On != Nobody && x.kind() == y.kind()
}

// kind is the kind of the failure, whether or not blocks had to be loaded first: vLLM answers 500 for both.
func (x *FailedAttempt) kind() outlier.Kind {
	if x.Fault.Kind == outlier.LoadFail {
		return outlier.ServerError
	}
	return x.Fault.Kind
}

// FailedAttempts are the failed attempts of one request, in order.
type FailedAttempts []FailedAttempt

// Judged describes the newest failed attempt. bad: its replica or pair was ejected before, so the failure is
// no surprise. out: the replica or pair is ejected now. likeBefore: it failed as the attempt before it did.
func (all FailedAttempts) Judged() (bad, out, likeBefore bool) {
	n := len(all)
	if n == 0 {
		return false, false, false
	}
	newest := &all[n-1]
	return newest.OutBeforeFailure, newest.OutNow, n > 1 && newest.alike(&all[n-2])
}

// Lost judges a request that ends without an answer. If all its attempts failed in the same way, the request
// is the likely cause, and the replicas are excused. The evidence is certain (cause) after three such
// attempts, or if connections broke off.
func (all FailedAttempts) Lost() (excuse, cause bool) {
	for i := 1; i < len(all); i++ {
		if !all[i].alike(&all[i-1]) {
			return false, false
		}
	}
	n := len(all)
	return n > 1, n > 2 || n > 1 && !all[n-1].Answered
}

// Own confirms the failures: the request succeeded elsewhere.
func (all FailedAttempts) Own(now time.Time) {
	for _, x := range all {
		x.Booking.own(x.Fault, now)
	}
}

// Excuse undoes the failures: the request is the cause, or the cause is unknown.
func (all FailedAttempts) Excuse(cause bool, now time.Time) (changes []outlier.Change) {
	for _, x := range all {
		changes = append(changes, x.Booking.excuse(x.Fault, cause, now)...)
	}
	return changes
}
