package planner

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// FailedAttempt is an attempt of a request that failed, and what was known of whom it is held against.
type FailedAttempt struct {
	Booking  *Booking
	Fault    Fault
	Answered bool // the engine itself said that it failed

	OutBeforeRequest bool // ejected when the request came: what failed there says nothing of the request
	OutBeforeFailure bool // ejected when the attempt failed, for failures that were mostly its own: no surprise
	OutNow           bool // ejected by then or by this failure: it gets no more that this one could add to
}

// Hold holds a failure of the time f.At against whom it concerns. came is when the request did: what many
// requests that came together did to each other says nothing of any of them.
func (pl *Planner) Hold(
	b *Booking, f Fault, answered bool, came time.Time,
) (failed FailedAttempt, changes []outlier.Change) {
	failed = FailedAttempt{
		Booking: b, Fault: f, Answered: answered, OutBeforeRequest: pl.KnownBad(b, f, came),
	}
	out := pl.KnownBad(b, f, f.At)
	failed.OutBeforeFailure = out && !pl.Excused(b, f)
	changes = pl.Failed(b, f, f.At)
	ejects := func(c outlier.Change) bool { return c.To == outlier.Ejected }
	failed.OutNow = out || slices.ContainsFunc(changes, ejects)
	return failed, changes
}

// alike reports whether two attempts failed in the same way with different replicas, none of which is known
// to fail others: the request is the likely cause.
func (x *FailedAttempt) alike(y *FailedAttempt) bool {
	if x.OutBeforeRequest || y.OutBeforeRequest {
		return false
	}
	return x.Fault.On != Nobody && y.Fault.On != Nobody && x.kind() == y.kind()
}

// kind is that of the failure, whether or not blocks were to be loaded before it: vLLM answers 500 for both.
func (x *FailedAttempt) kind() outlier.Kind {
	if x.Fault.Kind == outlier.LoadFail {
		return outlier.ServerError
	}
	return x.Fault.Kind
}

// FailedAttempts are those of one request, in turn.
type FailedAttempts []FailedAttempt

// Judged tells of the newest failed attempt whether it was no surprise, since whom it is held against was
// ejected before; whether that is out now; and whether it failed as the one before it did.
func (all FailedAttempts) Judged() (bad, out, likeBefore bool) {
	n := len(all)
	if n == 0 {
		return false, false, false
	}
	newest := &all[n-1]
	return newest.OutBeforeFailure, newest.OutNow, n > 1 && newest.alike(&all[n-2])
}

// Lost tells of a request that ends without an answer whether what its attempts were held against is to be
// excused: if all of them failed in the same way the request is the likely cause, and certain enough to count
// as evidence (cause) if it was three attempts, or connections that broke off.
func (all FailedAttempts) Lost() (excuse, cause bool) {
	for i := 1; i < len(all); i++ {
		if !all[i].alike(&all[i-1]) {
			return false, false
		}
	}
	n := len(all)
	return n > 1, n > 2 || n > 1 && !all[n-1].Answered
}

// OwnAll is [Planner.Own] of all attempts of a request.
func (pl *Planner) OwnAll(all FailedAttempts, now time.Time) {
	for _, x := range all {
		pl.Own(x.Booking, x.Fault, now)
	}
}

// ExcuseAll is [Planner.Excuse] of all attempts of a request.
func (pl *Planner) ExcuseAll(all FailedAttempts, cause bool, now time.Time) (changes []outlier.Change) {
	for _, x := range all {
		changes = append(changes, pl.Excuse(x.Booking, x.Fault, cause, now)...)
	}
	return changes
}
