package outlier

import (
	"fmt"
	"math"
	"time"
)

// State is whether a leg or pair is used.
type State uint8

// InUse takes requests like any other. Ejected takes none. HalfOpen takes as many at once as have succeeded,
// beginning with one.
const (
	InUse State = iota
	Ejected
	HalfOpen
)

func (s State) String() string {
	return [...]string{"in use", "ejected", "half-open", "?"}[min(s, HalfOpen+1)]
}

// MarshalText writes the name of s.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// track holds the outcomes and the state of one leg or pair. Guarded by the set's mu.
type track struct {
	recent outcomes

	state   State
	ejected ejection
	trials  trials
	half    halfOpen
}

// outcomes is how recent requests ended. Requests of the last minute are weighed by their age, as of at.
type outcomes struct {
	good, bad float64   // requests and failures of the last minute, each weighed by its age
	at        time.Time // as of when
	row       float64   // weight of the failures since the last request that went well
	excused   float64   // of the last minute: failures that the request was found to be the cause of
	// Of the last minute: failures that it was found not to be the cause of, since it went well elsewhere.
	own      float64
	doubt    doubt
	cleared  time.Time // when row was last set to zero
	failedAt time.Time // the newest failure
	lost     float64   // seconds that a failed request took, running mean
}

// ejection is the newest ejection and its course.
type ejection struct {
	era     uint32        // counts ejections: a request that began before the newest one does not count
	turned  time.Time     // begin of the present state
	cause   string        // of the newest ejection
	wait    time.Duration // from the newest ejection to the trial
	before  State         // what the newest ejection ended
	byLoads bool          // the newest ejection was for loads that failed with every partner
	forced  bool          // half-open since it was used although it was ejected, not by a trial
}

// trials is when a request of our own is sent there, and how the newest went.
type trials struct {
	trial   time.Time // when that is
	trying  bool      // a trial is under way
	suspect bool      // in use, and to be tried all the same
	stuck   time.Time // the newest trial that got stuck
	wrong   bool      // one brought another text than it should, and none has gone well since
}

// halfOpen is how many requests are let in to see.
type halfOpen struct {
	limit  int // half-open: requests at once
	flying int // half-open: requests there
}

func (t *outcomes) decay(now time.Time) {
	if d := now.Sub(t.at); d > 0 {
		k := math.Exp(-d.Seconds() / window.Seconds())
		t.good = t.good * k
		t.bad = t.bad * k
		t.at = now
		t.excused, t.own = t.excused*k, t.own*k
		t.doubt.decay(k)
	}
}

// well notes a request that went well, and reports whether the state has changed. A request that began
// before the newest ejection says nothing about the present.
func (t *track) well(era uint32, now time.Time) bool {
	t.recent.decay(now)
	t.recent.good++
	if era != t.ejected.era {
		return false
	}
	t.recent.clear(now)
	switch t.state {
	case Ejected: // it was used all the same
		t.admit(2, now)
		t.ejected.forced = true
		return true
	case HalfOpen:
		t.half.limit *= 2
		t.recent.bad /= 2
		if t.half.limit >= fullAt {
			t.turn(InUse, now)
			return true
		}
	}
	return false
}

// weigh returns the weight of a failure here. A kind of failure that requests may cause weighs less, the
// more earlier failures were the requests' fault. The first failures have full weight. So bad requests need
// not be identified, and a request can be doubted without a second try.
func (t *outcomes) weigh(k Kind, now time.Time) float64 {
	if k != ServerError && k != LoadFail {
		return k.weight()
	}
	t.decay(now)
	return k.weight() * (1 + t.own) / (1 + t.own + t.excused)
}

func (t *outcomes) failed(f Failure, now time.Time) (weight float64) {
	if now.Sub(t.failedAt) > remembered { // failures before were too long ago
		t.row, t.doubt = 0, doubt{}
	}
	t.failedAt = now
	t.decay(now)
	t.excused = max(0, t.excused-t.doubt.asked(f.Request))
	weight = t.weigh(f.Kind, now)
	t.bad += weight
	t.row += weight
	const share = 0.3 // of the newest in the mean
	t.lost += share * (min(f.Took.Seconds(), mostLost) - t.lost)
	return weight
}

// over reports whether the leg has failed so often that it is to be ejected. A half-open one needs to fail
// once, by a failure that is its own.
func (t *track) over(row, share float64, now time.Time) bool {
	switch t.state {
	case Ejected:
		return false
	case HalfOpen:
		return t.recent.row >= halfSure
	}
	return t.recent.exceeds(row, share, now)
}

// halfSure is the weight of failures that are as likely a leg's own as not.
const halfSure = 0.5

// exceeds reports whether the failures in a row, or their share, are too many for a leg in use.
func (t *outcomes) exceeds(row, share float64, now time.Time) bool {
	t.decay(now)
	return row > 0 && t.row >= row || share > 0 && t.bad >= fewest && t.bad >= share*(t.good+t.bad)
}

// eject takes the leg or pair out of use. The time to the trial doubles from one ejection to the next, and
// halves with every minute in use between them. If the leg was used only because too few others were left,
// it was never let back in, and its time stays.
func (t *track) eject(s Settings, row float64, longest time.Duration, k Kind, now time.Time) {
	wait := float64(2 * t.ejected.wait)
	switch {
	case t.state == InUse:
		wait *= math.Exp2(-float64(now.Sub(t.ejected.turned)) / float64(window))
	case t.ejected.forced:
		wait = float64(t.ejected.wait)
	}
	t.ejected.wait = min(max(time.Duration(wait), s.Base), longest)
	t.trials.trial, t.trials.trying = now.Add(t.ejected.wait), false
	t.ejected.cause = t.why(k, row)
	t.ejected.before = t.state
	t.ejected.byLoads = false
	t.ejected.forced = false
	t.ejected.era++
	t.half.flying = 0
	t.turn(Ejected, now)
}

// why is the reason of the ejection, for people.
func (t *track) why(k Kind, row float64) string {
	switch {
	case t.state == HalfOpen:
		return "failed again: " + k.String()
	case k == Wrong:
		return k.String()
	case row > 0 && t.recent.row >= row:
		return fmt.Sprintf("failures in a row, the last: %s", k)
	}
	return fmt.Sprintf("%.0f %% of its requests failed, the last: %s",
		100*t.recent.bad/(t.recent.good+t.recent.bad), k)
}

// again puts the trial off, since one has failed.
func (t *track) again(base, longest time.Duration, k Kind, now time.Time) {
	t.recent.doubt.confirm()
	t.ejected.wait = min(max(2*t.ejected.wait, base), longest)
	t.trials.trial, t.trials.trying = now.Add(t.ejected.wait), false
	t.ejected.cause = "a trial failed: " + k.String()
}

// admit lets limit requests at once come back, and reports that the state has changed.
func (t *track) admit(limit int, now time.Time) bool {
	t.half.limit = limit
	t.half.flying = 0
	t.trials.trying = false
	t.ejected.forced = false
	t.recent.clear(now)
	t.recent.bad = 0
	t.turn(HalfOpen, now)
	return true
}

func (t *track) turn(to State, now time.Time) {
	t.state, t.ejected.turned = to, now
	t.trials.wrong = t.trials.wrong && to == Ejected
}

// openItself makes the next request the trial, if no caller makes trials.
func (t *track) openItself(s Settings, now time.Time) {
	if t.state == Ejected && !s.Trials && !now.Before(t.trials.trial) {
		t.admit(1, now)
	}
}

// startAnew makes the trial due, and starts the times between trials from the shortest. The failures were
// failures of another process and say nothing about this one.
func (t *track) startAnew(now time.Time) {
	t.ejected.wait = 0
	t.recent.doubt.confirm()
	if t.state == Ejected && t.trials.trial.After(now) {
		t.trials.trial = now
	}
}

// found notes whether a request was the cause of its failure.
func (t *outcomes) found(cause bool, now time.Time) {
	t.decay(now)
	if cause {
		t.excused++
	}
}

// excuse undoes a failure of the given time. If the other failures are too few for the ejection that it led
// to, the ejection ends too. excuse reports whether the state has changed.
func (t *track) excuse(weight float64, at time.Time, row, share float64, now time.Time) bool {
	t.recent.decay(now)
	t.recent.bad = max(0, t.recent.bad-weight)
	if !t.recent.cleared.After(at) {
		t.recent.row = max(0, t.recent.row-weight)
	}
	if t.state != Ejected || t.trials.trying || t.trials.wrong || t.ejected.byLoads ||
		t.ejected.turned.Before(at) || t.recent.exceeds(row, share, now) {
		return false
	}
	t.restore(now)
	return true
}

// restore undoes the newest ejection.
func (t *track) restore(now time.Time) {
	t.ejected.wait /= 2
	if t.ejected.before == HalfOpen {
		t.admit(1, now)
		return
	}
	t.turn(InUse, now)
}

func (t *track) out() bool {
	return t.state == Ejected || t.state == HalfOpen && t.half.flying >= t.half.limit
}

// price is what the leg's failures are expected to cost a request: each lost attempt leads to another one,
// which may fail as well.
func (t *outcomes) price(now time.Time) float64 {
	t.decay(now)
	if t.bad < 0.01 {
		return 0
	}
	const most = 0.95 // of requests that are assumed to fail
	share := min(t.bad/(t.good+t.bad+1), most)
	return share / (1 - share) * (t.lost + costBeside)
}

// idle reports whether nothing is left to remember.
func (t *track) idle(now time.Time) bool {
	return t.state == InUse && now.Sub(t.recent.at) > remembered && now.Sub(t.ejected.turned) > remembered
}
