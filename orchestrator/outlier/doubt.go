package outlier

import "time"

// Failure is a request that failed on a leg or a pair.
type Failure struct {
	Kind Kind
	Took time.Duration // until it was known
	// Request identifies the client's request: a retry by the client has the same number. Requests without a
	// known number have zero, and count as one request.
	Request uint64
}

// If a request fails on several replicas in the same way, either the request is the cause, or every request
// fails on these replicas. Other requests on the replicas tell which, never the request itself:
//
//   - A replica that has answered another request well since is not the cause. The failure of this request
//     is taken back.
//   - If only this request has failed since the last success, however often, nothing else speaks against the
//     replica. The failure is taken back too.
//   - If several different requests failed and none succeeded, the replica is as likely the cause. The
//     failures stand, and new requests avoid the replica until a request or a trial succeeds there.
//
// Without the last rule, requests that had met all three failing replicas of four took back the failures
// that should have ejected the three.

// doubt sums up the failures of a leg or a pair since its last success.
type doubt struct {
	any     bool
	request uint64 // the first that failed
	several bool   // others have failed too
	// Sums over the last minute, weighed by age. stands counts failures that stand although their requests
	// failed elsewhere too, and weight is their weight. alone counts failures that were taken back because no
	// other request had failed.
	stands, weight, alone float64
}

func (d *doubt) decay(k float64) {
	d.stands *= k
	d.weight *= k
	d.alone *= k
}

// asked notes the request of a new failure. Once a second request fails here, it is not certain any more
// that the first request was the cause. asked then returns how many failures were excused because of the
// first request.
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

// mayExcuse reports whether a failure of this weight is taken back although no request has succeeded since.
// Otherwise the failure stands until one succeeds. cause is as for [Attempt.Excuse].
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

// clear undoes the standing failures, because a request or a trial has succeeded: the failed requests were
// the cause.
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
