package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// This file decides which replica or pair each failed attempt is blamed on, if any, and as which kind of
// failure. The planner uses this to price failures and to eject replicas.

// blame returns the replica or pair that caused the failure of a booking. A client's fault, the router's own
// fault, and a full engine are blamed on no replica.
func (f *failure) blame(b *planner.Booking) planner.Fault {
	kind, is := f.outlierKind()
	switch {
	case !is:
		return planner.Fault{}
	case f.source != "" && b.Mode == planner.Split: // one failure does not show which end is at fault
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
		// Otherwise this machine could make no connection, or the router closed its own.
		return as.as, engine.Unreachable(f.err)
	default:
		return as.as, as.holds
	}
}

// failedOn blames a failed attempt on the replica or pair at fault. came is the arrival of the request, and
// began the begin of the attempt. Requests that came together and disturbed each other prove nothing about
// any replica.
func (e *env) failedOn(
	b *planner.Booking, f *failure, fingerprint uint64, came, began time.Time,
) planner.FailedAttempt {
	fault, now := f.blame(b), time.Now()
	if e.fleet.Asleep(b.Prefill.ID) || e.fleet.Asleep(b.Decode.ID) {
		fault = planner.Fault{} // an engine that sleeps has not failed
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
