package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Every failed attempt is held against a replica, a pair or nothing, at this one place, with the kind of
// failure. By this the planner prices failures and ejects replicas.

// blame returns the replica or pair at fault for the failure of a booking. A client's fault, the router's
// own fault, and a full engine are held against nothing.
func (f *failure) blame(b *planner.Booking) planner.Fault {
	kind, is := f.outlierKind()
	switch {
	case !is:
		return planner.Fault{}
	case f.source != "" && b.Mode == planner.Split: // the blocks, or either end: one failure does not tell
		if kind == outlier.ServerError {
			kind = outlier.LoadFail
		}
		return planner.Fault{On: planner.OnPair, Kind: kind}
	case f.at == b.Prefill.ID && f.at != "":
		return planner.Fault{On: planner.OnPrefill, Kind: kind}
	case f.at == b.Decode.ID:
		return planner.Fault{On: planner.OnDecode, Kind: kind}
	}
	return planner.Fault{}
}

// outlierKind is the kind of the engine's failure, in the terms of ejection; false if the engine did nothing
// wrong.
func (f *failure) outlierKind() (kind outlier.Kind, is bool) {
	switch as := f.row().blame; {
	case f.own():
		return outlier.ServerError, f.answered()
	case f.kind == kindUnreachable:
		// Else this machine could make no connection, or ours is closed.
		return as.as, engine.Unreachable(f.err)
	default:
		return as.as, as.holds
	}
}

// failedOn holds a failed attempt against the replica or pair at fault. came is the arrival of the request,
// and began the begin of the attempt: requests that came together and disturbed each other prove nothing
// about any replica.
func (e *env) failedOn(
	b *planner.Booking, f *failure, fingerprint uint64, came, began time.Time,
) planner.FailedAttempt {
	fault, now := f.blame(b), time.Now()
	if e.fleet.Asleep(b.Prefill.ID) || e.fleet.Asleep(b.Decode.ID) {
		fault = planner.Fault{} // what an engine leaves undone in its sleep is no failure
	}
	fault.Request = fingerprint
	fault.Took, fault.At = now.Sub(began), now
	e.m.Failures.Count(b, fault)
	if fault.Kind == outlier.Broken && fault.On != planner.Nobody {
		e.fleet.BrokeOff(f.at)
	}
	failed, changes := b.Hold(fault, f.answered(), came)
	e.trials.Announce(changes)
	if to := e.fleet.Endpoint(b.Decode.ID); fault.On == planner.OnPair && to != nil {
		to.Transfers().Failed()
	}
	return failed
}

// passedOn records the result of a request that went whole to one replica. A client's own mistake shows that
// the engine answers. An engine's 500 shows nothing: without a second try it is unknown whether the request
// is the cause. The same holds for a status that no usual request can cause, because clients choose the
// paths of passed requests. An error in the engine's stream counts: the engine had taken the request.
func (e *env) passedOn(b *planner.Booking, f *failure, began time.Time) {
	if f == nil || f.own() && f.owner() == ownerClient {
		e.trials.Announce(b.Decoding(time.Now()))
		return
	}
	if f.kind == kindMisplaced || f.kind == kindStatus {
		return
	}
	e.failedOn(b, f, 0, began, began)
}
