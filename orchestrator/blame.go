package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"tandem/internal/engine"
	"tandem/internal/replica"
	"tandem/orchestrator/fleet"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/planner"
)

// Every attempt that fails is held against somebody, at one place: whose fault it was, and of which kind.
// From that the planner prices failures, and keeps out who fails too often.

// blame says against whom the failure of a booking is held. A client's fault, the router's own, and an
// engine's word that it is full, are held against nobody.
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

// outlierKind is what the engine did, in the terms of ejection; false where it did nothing wrong.
func (f *failure) outlierKind() (kind outlier.Kind, is bool) {
	switch f.kind {
	case "unreachable":
		// Else this machine could make no connection, or ours is closed.
		return outlier.Refused, engine.Unreachable(f.err)
	case "timeout", "silent", "late":
		return outlier.Silent, true
	case "broken":
		return outlier.Broken, true
	case "stuck":
		return outlier.Stuck, true
	case "bad_params", "bad_answer", "foreign":
		return outlier.Unusable, true
	}
	return outlier.ServerError, f.answered()
}

// fingerprint tells the requests of clients apart: one that is sent again has the same.
func (j *job) fingerprint() uint64 { return xxhash.Sum64(j.req.Raw) }

// failedOn holds a failed attempt of a request against whom it concerns. came is when the request did, and
// began when the attempt: what many requests that came together did to each other says nothing of any of
// them.
func (o *Orchestrator) failedOn(
	b *planner.Booking, f *failure, request uint64, came, began time.Time,
) planner.FailedAttempt {
	fault, now := f.blame(b), time.Now()
	fault.Request = request
	fault.Took, fault.At = now.Sub(began), now
	o.m.failed(b, fault)
	failed, changes := o.planner.Hold(b, fault, f.answered(), came)
	o.tell(changes)
	if to := o.fleet.Endpoint(b.Decode.ID); fault.On == planner.OnPair && to != nil {
		to.Transfers().Failed()
	}
	return failed
}

// passedOn notes what became of a request that went whole to one replica. A client's own mistake says that
// the engine answers. An engine's 500 says nothing: it is not tried elsewhere, so that nobody knows whether
// the request is the cause. An error in its stream does: it had taken the request.
func (o *Orchestrator) passedOn(b *planner.Booking, f *failure, began time.Time) {
	if f == nil || f.own && f.owner == "client" {
		o.tell(o.planner.Decoding(b, time.Now()))
		return
	}
	if f.own && f.kind != errorEventKind {
		return
	}
	o.failedOn(b, f, 0, began, began)
}

// ownFaults notes that a request which failed before has begun well elsewhere: whoever failed it is the
// cause.
func (j *job) ownFaults() {
	j.q.o.planner.OwnAll(j.faults, time.Now())
	j.faults = nil
}

// excuse takes back what the attempts of a job were held against: the request is the cause, or nobody knows.
func (j *job) excuse(cause bool) {
	j.q.o.tell(j.q.o.planner.ExcuseAll(j.faults, cause, time.Now()))
	j.faults = nil
}

// telling is what was said last of ejections: one change at a time, and always what holds by then. Changes
// come from many requests, in any order.
type telling struct {
	mu    sync.Mutex            // guards the following
	pairs map[outlier.Pair]bool // that were said to be ejected
}

// tell counts who was ejected, logs who is and who is back, and keeps their states.
func (o *Orchestrator) tell(changes []outlier.Change) {
	if len(changes) == 0 {
		return
	}
	defer func() {
		if slices.ContainsFunc(changes, func(c outlier.Change) bool { return c.ID == "" }) {
			o.fleet.JudgePairs()
		}
	}()
	o.telling.mu.Lock()
	defer o.telling.mu.Unlock()
	for _, c := range changes {
		now := o.planner.Outliers().Now(c)
		if c.ID == "" {
			o.tellPair(c, now)
			continue
		}
		o.tellLeg(c, now)
	}
}

// tellLeg needs telling.mu. c is what changed, and now what holds of it.
func (o *Orchestrator) tellLeg(c, now outlier.Change) {
	to := o.fleet.Endpoint(c.ID)
	if to == nil {
		return
	}
	if c.To == outlier.Ejected {
		o.m.ejected.WithLabelValues(to.Member.Role.String(), string(c.ID), c.Leg.String()).Inc()
	}
	cause := ""
	if now.To != outlier.InUse {
		cause = now.Cause
	}
	ejected, halfOpen := fleet.EjectedState(c.Leg), fleet.HalfOpenState(c.Leg)
	if now.To == outlier.Ejected {
		to.SetState(c.ID, halfOpen, "")
		to.SetState(c.ID, ejected, cause)
		return
	}
	to.SetState(c.ID, ejected, "")
	if to.PutState(c.ID, halfOpen, cause) && cause != "" {
		o.log.Info("replica comes back, one request at a time", "replica", string(c.ID), "leg", c.Leg.String())
	}
}

// tellPair needs telling.mu. c is what changed, and now what holds of it.
func (o *Orchestrator) tellPair(c, now outlier.Change) {
	prefill, decode := string(c.Pair.Prefill), string(c.Pair.Decode)
	if c.To == outlier.Ejected {
		o.m.pairEjected.WithLabelValues(prefill, decode).Inc()
	}
	out := now.To == outlier.Ejected
	switch {
	case out == o.telling.pairs[c.Pair]:
	case out:
		if o.telling.pairs == nil {
			o.telling.pairs = map[outlier.Pair]bool{}
		}
		o.telling.pairs[c.Pair] = true
		o.log.Warn("pair is ejected: KV blocks do not come over between these replicas", "prefill", prefill,
			"decode", decode,
			"cause", now.Cause, "next_trial", now.Trial)
	default:
		delete(o.telling.pairs, c.Pair)
		o.log.Info("pair is back", "prefill", prefill, "decode", decode)
	}
}

// rename keeps what was said of pairs under the names that their replicas have now.
func (t *telling) rename(to replica.Renames) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pairs = replica.Rekey(t.pairs, func(was outlier.Pair) (outlier.Pair, bool) { return was.Now(to) })
}

// keep forgets what was said of the pairs of replicas that are not among the members any more.
func (t *telling) keep(member func(id replica.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.pairs,
		func(p outlier.Pair, _ bool) bool { return !member(p.Prefill) || !member(p.Decode) })
}

// failed counts an attempt against whom it is held. That of a pair counts as its decode replica's.
func (m *metrics) failed(b *planner.Booking, f planner.Fault) {
	at, leg := &b.Decode, "whole"
	switch {
	case f.On == planner.Nobody:
		return
	case f.On == planner.OnPrefill:
		at, leg = &b.Prefill, "prefill"
	case f.On == planner.OnPair:
		leg = "pair"
	case b.Mode == planner.Split:
		leg = "decode"
	}
	m.failures.WithLabelValues(at.Role.String(), string(at.ID), leg, f.Kind.String()).Inc()
}
