package outlier

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Attempt is one request on one leg, from its booking to its outcome. The zero value stands for none, and all
// that is done with it has no effect.
type Attempt struct {
	set   *Set
	key   legKey
	era   uint32    // of the track when it began
	trial bool      // it counts among the requests that a half-open leg has at once
	bad   time.Time // when it failed
	cost  float64   // what the failure counted
}

// Begin notes that a request was booked. The holder of the attempt must call [Attempt.End].
func (s *Set) Begin(id replica.ID, leg Leg, now time.Time) Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Attempt{set: s, key: legKey{id, leg}}
	t := s.of(a.key, now)
	a.era = t.ejected.era
	if t.state == HalfOpen {
		t.half.flying++
		a.trial = true
	}
	return a
}

// End notes that the request is over. A second call does nothing. Any goroutine may call it.
func (a *Attempt) End() {
	if a.set == nil {
		return
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	if t := a.set.leg[a.key]; a.trial && t != nil && t.ejected.era == a.era && t.half.flying > 0 {
		t.half.flying--
	}
	a.trial = false
}

// Good records that the leg succeeded.
func (a *Attempt) Good(now time.Time) []Change {
	if a.set == nil {
		return nil
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	t := a.set.of(a.key, now)
	return a.set.change(a.key, t, t.well(a.era, now))
}

// Bad notes that the leg failed.
func (a *Attempt) Bad(f Failure, now time.Time) []Change {
	if a.set == nil {
		return nil
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.activeUntil(now.Add(remembered))
	t := a.set.of(a.key, now)
	a.bad = now
	a.cost = t.recent.failed(f, now)
	limit := float64(a.set.settings.Failures)
	if limit == 0 || t.ejected.era != a.era || !t.over(limit, a.set.settings.Share, now) {
		return nil
	}
	t.eject(a.set.settings, limit, a.set.settings.Max, f.Kind, now)
	return a.set.change(a.key, t, true)
}

// Excuse undoes a failure of the leg. cause says that the request is the cause, because it failed elsewhere
// in the same way; else the cause is unknown. If several different requests have failed and none has
// succeeded since, the failures stand until one succeeds.
func (a *Attempt) Excuse(cause bool, now time.Time) []Change {
	if a.set == nil {
		return nil
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	t, to := a.set.of(a.key, now), &a.set.settings
	at := a.bad
	a.bad = time.Time{}
	if at.IsZero() || !t.recent.mayExcuse(a.cost, at, cause, now) {
		return nil
	}
	t.recent.found(cause, now)
	changed := t.excuse(a.cost, at, float64(to.Failures), to.Share, now)
	return a.set.change(a.key, t, changed)
}

// Own notes that the request which failed here went well elsewhere, so that it was not the cause.
func (a *Attempt) Own(now time.Time) {
	if a.set == nil || a.bad.IsZero() {
		return
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	t := a.set.of(a.key, now)
	t.recent.decay(now)
	t.recent.own++
	a.bad = time.Time{}
}

// Known is [Set.Known] of the leg.
func (a *Attempt) Known(before time.Time) bool {
	return a.set != nil && a.set.Known(a.key.id, a.key.leg, before)
}

// Excused reports whether what failed on the leg within the last minute was rather the requests' fault than
// the leg's.
func (a *Attempt) Excused() bool {
	if a.set == nil {
		return false
	}
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	t := a.set.leg[a.key]
	return t != nil && t.recent.excused > t.recent.own
}
