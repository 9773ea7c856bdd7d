package policies

import (
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Production's handling of failures, with its defaults: which replica or pair is blamed
// (orchestrator/blame.go), and which failures are tried again (orchestrator/attempt.go). Several failures of
// one request are judged by the same code (orchestrator/planner/attempts.go). Unlike in production, a request
// does not wait for the verdict on a replica when the retry budget is spent.
var retries = config.Default().Retry

// attempts are the failed attempts of a request.
type attempts struct {
	tries    int
	faults   planner.FailedAttempts
	leg      cluster.Side // the failed leg of the previous attempt
	at       replica.ID   // where it failed
	doubted  bool         // the prefill replica may be at fault
	budgeted bool         // the request holds a place in the retry budget
	third    bool         // two replicas failed alike: only a replica that was not tried yet may be next
	alone    bool         // a decode replica must compute the prompt
	avoid    [2][]replica.ID
}

var _ cluster.Survivor = (*Tandem)(nil)

// Failed blames a replica or pair for the failure, and decides about another attempt.
func (t *Tandem) Failed(q *cluster.Query, f cluster.Failure, now time.Time) cluster.Verdict {
	b := &t.underWay.booked[q.Slot]
	fault := blame(b.book, f)
	fault.At, fault.Request = now, uint64(q.At.UnixNano())+uint64(q.Slot)
	failed, changes := b.book.Hold(fault, !f.Refused, q.At)
	t.Stats.count(changes)
	b.retry.faults = append(b.retry.faults, failed)
	again := t.again(b, f, now)
	b.book.Release(now)
	b.book = nil
	t.underWay.live--
	if again {
		t.Stats.Retried++
	} else {
		t.lost(b, now)
		t.forget(b)
	}
	return cluster.Verdict{Again: again, GivesBack: true}
}

// blame returns the replica or pair that is blamed for a failure. A decode replica that answers a split
// request with an error may not have received the blocks.
func blame(b *planner.Booking, f cluster.Failure) planner.Fault {
	fault := planner.Fault{On: planner.OnDecode, Kind: outlier.ServerError, Took: f.Took}
	switch {
	case f.Refused:
		fault.Kind = outlier.Refused
	case f.Leg == cluster.Decode && b.Mode == planner.Split:
		fault.On, fault.Kind = planner.OnPair, outlier.LoadFail
	}
	if f.Leg == cluster.Prefill {
		fault.On = planner.OnPrefill
	}
	return fault
}

// again decides whether another attempt follows, and which replicas it avoids.
func (t *Tandem) again(b *booked, f cluster.Failure, now time.Time) bool {
	r, at := &b.retry, t.members.ids[f.Leg][f.Replica]
	bad, out, _ := r.faults.Judged()
	second := r.tries > 1 && r.leg == f.Leg && r.at != at && !f.Refused && !bad
	if r.tries >= retries.Attempts {
		return false
	}
	mayStay := f.Leg == cluster.Prefill && b.req.SplitOK && b.req.LocalOK
	alone := second && mayStay
	r.doubted = f.Leg == cluster.Decode && b.book.Mode == planner.Split && !f.Refused
	r.avoid[f.Leg] = append(r.avoid[f.Leg], at)
	if r.doubted {
		r.avoid[cluster.Prefill] = append(r.avoid[cluster.Prefill], b.book.Prefill.ID)
	}
	if r.third = second && !alone; r.third && !t.othersLeft(b, now) {
		return false
	}
	if !alone && !f.Refused && !out && !t.takeBudget(r) {
		if !mayStay {
			return false
		}
		alone = true
	}
	r.leg, r.at = f.Leg, at
	r.alone = r.alone || alone
	return true
}

// othersLeft reports whether a replica is left that has not failed the request yet. Only such a replica can
// show where the fault lies.
func (t *Tandem) othersLeft(b *booked, now time.Time) bool {
	q := b.req
	q.AvoidPrefill, q.AvoidDecode = b.retry.avoid[cluster.Prefill], b.retry.avoid[cluster.Decode]
	_, err := t.planner.Explain(&q, now)
	none := (*planner.NoReplica)(nil)
	return !errors.As(err, &none)
}

// lost excuses the failures of a request that ends without an answer, if the request is the likely cause.
func (t *Tandem) lost(b *booked, now time.Time) {
	if excuse, cause := b.retry.faults.Lost(); excuse {
		t.Stats.count(b.retry.faults.Excuse(cause, now))
	}
	b.retry.faults = nil
}

func (t *Tandem) takeBudget(r *attempts) bool {
	if r.budgeted {
		return true
	}
	if t.underWay.retrying+1 > max(retries.Min, int(retries.Share*float64(t.underWay.live))) {
		return false
	}
	t.underWay.retrying++
	r.budgeted = true
	return true
}

// forget ends a request's books.
func (t *Tandem) forget(b *booked) {
	if b.retry.budgeted {
		t.underWay.retrying--
	}
	*b = booked{}
}

// search asks the planner. If both ends of a failed transfer are avoided and one is the last of its pool, it
// gets another chance.
func (t *Tandem) search(b *booked, now time.Time) (*planner.Booking, error) {
	book, err := t.planner.Plan(&b.req, now)
	none := (*planner.NoReplica)(nil)
	if !b.retry.doubted || b.retry.third || !errors.As(err, &none) {
		return book, err
	}
	b.retry.doubted = false
	avoid := &b.req.AvoidDecode
	if none.Pool == "prefill" {
		avoid = &b.req.AvoidPrefill
	}
	if len(*avoid) == 0 {
		return book, err
	}
	*avoid = (*avoid)[:len(*avoid)-1]
	return t.planner.Plan(&b.req, now)
}

// final reports whether a request that has failed before has no replica left to try. Waiting cannot help
// then.
func final(b *booked, err error) bool {
	none := (*planner.NoReplica)(nil)
	return b.retry.tries > 0 && errors.As(err, &none)
}

// Member keeps the pools' members: a replica that comes back is a new one.
func (t *Tandem) Member(side cluster.Side, i int, here bool, now time.Time) {
	t.members.gone[side][i] = !here
	var left []replica.Replica
	for k, r := range t.members.all[side] {
		if !t.members.gone[side][k] {
			left = append(left, r)
		}
	}
	pool := interface {
		SetMembers([]replica.Replica, time.Time)
		SetTrust(replica.ID, replica.Trust)
	}(t.prefill)
	if side == cluster.Decode {
		pool = t.decode
	}
	pool.SetMembers(left, now)
	if here {
		pool.SetTrust(t.members.ids[side][i], replica.Live)
	}
}

// count counts ejections.
func (s *Stats) count(changes []outlier.Change) {
	for _, c := range changes {
		if c.To == outlier.Ejected {
			s.Ejected++
		}
	}
}
