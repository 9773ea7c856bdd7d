package outlier

import "time"

// Failure is a request that failed on a leg or a pair.
type Failure struct {
	Kind Kind
	Took time.Duration // until it was known
	// Request tells requests apart: one that a client sends again has the same. Those of which nobody knows
	// have zero, and are taken for the same.
	Request uint64
}

// A request that fails on several replicas in the same way is either the cause, or has met several that fail
// everybody. Which one shows in what else those replicas do, never in that request:
//
//   - One that has answered another request well since is not the cause. What this request did there is taken
//     back.
//   - Where only this request has failed since the last that went well, however often, nothing speaks against
//     the replica but it. That is taken back as well.
//   - Where several different ones failed and none went well, the replica is as likely the cause. What they
//     did stands, and whoever comes next is kept from it, until a request or a trial goes well there.
//
// Else those that had met all of three failing replicas of four took back what would have ejected these.

// doubt is what is known of the failures of a leg or a pair since the last request that went well there.
type doubt struct {
	any     bool
	request uint64 // the first that failed
	several bool   // others have failed too
	// Of the last minute, weighed by age: failures that stand although their requests failed elsewhere too, what
	// they count, and those that were taken back since nobody else had failed.
	stands, weight, alone float64
}

func (d *doubt) decay(k float64) {
	d.stands *= k
	d.weight *= k
	d.alone *= k
}

// asked notes whose failure comes now. Once a second request fails here, the first is no longer the cause for
// certain: asked returns how many failures were excused for that.
func (d *doubt) asked(request uint64) (alone float64) {
	if !d.any {
		d.any, d.request = true, request
	}
	if d.several || request == d.request {
		return 0
	}
	d.several = true
	alone, d.alone = d.alone, 0
	d.stands += alone
	return alone
}

// mayExcuse reports whether a failure of that weight is taken back although nothing has gone well since. If
// not it stands until then. cause is as for [Attempt.Excuse].
func (d *doubt) mayExcuse(weight float64, cause bool) bool {
	n := 0.0
	if cause {
		n = 1
	}
	if d.several {
		d.weight += weight
		d.stands += n
		return false
	}
	d.alone += n
	return true
}

// mayExcuse reports whether a failure of the given time is taken back now. If not it stands until something
// goes well here, see [track.clear].
func (t *outcomes) mayExcuse(weight float64, at time.Time, cause bool, now time.Time) bool {
	t.decay(now)
	return t.cleared.After(at) || t.doubt.mayExcuse(weight, cause)
}

// clear takes back what stood, since a request or a trial has gone well: those requests were the cause.
func (t *outcomes) clear(now time.Time) {
	t.decay(now)
	t.bad = max(0, t.bad-t.doubt.weight)
	t.excused += t.doubt.stands
	t.doubt = doubt{}
	t.row, t.cleared = 0, now
}

// confirm notes that the leg or pair failed a request that is well for certain: what stood is its own.
func (d *doubt) confirm() {
	d.stands = 0
	d.weight = 0
	d.alone = 0
}
