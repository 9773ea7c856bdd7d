package outlier

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Trial is a leg or a pair that may be tried again, with a request of the router's own.
type Trial struct {
	ID   replica.ID // zero for a pair
	Leg  Leg
	Pair Pair // zero for a leg

	era uint32
}

// IsPair reports whether a pair is to be tried.
func (t Trial) IsPair() bool { return t.ID == "" }

// Due returns the trials to make now, each once until [Set.Passed] or [Set.Failed] reports its end. It
// forgets tracks that have nothing to tell any more. A replica that is not reachable is not due. Its trial
// would fail, and delay the next trial more and more while the replica is away. reachable must not call s.
func (s *Set) Due(now time.Time, reachable func(replica.ID) bool) []Trial {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []Trial
	out := false
	for key, t := range s.leg {
		if t.dueAt(now) && reachable(key.id) {
			t.trials.give()
			due = append(due, Trial{ID: key.id, Leg: key.leg, era: t.ejected.era})
		}
		// no request has used the leg for long, and it has no new failure
		if t.state == HalfOpen && now.Sub(t.ejected.turned) > remembered {
			t.turn(InUse, now)
		}
		if t.idle(now) {
			delete(s.leg, key)
		}
		out = out || t.state != InUse
	}
	for p, t := range s.pair {
		if t.dueAt(now) && reachable(p.Prefill) && reachable(p.Decode) {
			t.trials.give()
			due = append(due, Trial{Pair: p, era: t.ejected.era})
		}
		if t.idle(now) {
			delete(s.pair, p)
		}
		out = out || t.state != InUse
	}
	if out {
		s.activeUntil(now.Add(remembered))
	}
	slices.SortFunc(due, func(a, b Trial) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Leg, b.Leg),
			cmp.Compare(a.Pair.Prefill, b.Pair.Prefill), cmp.Compare(a.Pair.Decode, b.Pair.Decode))
	})
	return due
}

// dueAt reports whether a trial is to be made now.
func (t *track) dueAt(now time.Time) bool {
	return !t.trials.trying && (t.trials.suspect || t.state == Ejected && !now.Before(t.trials.trial))
}

// give notes that the trial is made.
func (t *trials) give() { t.trying, t.suspect = true, false }

// Passed records that a trial succeeded. A leg becomes half-open. A pair is in use again, because the trial
// tested the very thing that it was ejected for.
func (s *Set) Passed(tr Trial, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tried(tr)
	if t == nil {
		return nil
	}
	if !tr.IsPair() {
		return s.change(legKey{tr.ID, tr.Leg}, t, t.admit(1, now))
	}
	t.recent.clear(now)
	t.recent.bad = 0
	t.trials.trying = false
	if t.state == InUse { // it was only suspected
		return nil
	}
	t.turn(InUse, now)
	return []Change{{Pair: tr.Pair, To: InUse}}
}

// Failed notes that a trial failed: the next comes after twice the time. A pair that was only suspected is
// ejected.
func (s *Set) Failed(tr Trial, k Kind, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tried(tr)
	t.note(k, now)
	switch {
	case t == nil:
	case !tr.IsPair():
		t.again(s.settings.Base, s.settings.Max, k, now)
		if tr.Leg != Whole {
			s.confirmEnd(tr.ID)
		}
	case t.state == InUse && k == Silent: // it may only be busy
		t.trials.trying = false
	case t.state == InUse:
		t.recent.failed(Failure{Kind: k}, now)
		t.recent.doubt.confirm()
		t.eject(s.settings, pairRow, s.pairMost(k), k, now)
		t.ejected.cause = "a trial failed: " + k.String()
		return []Change{{Pair: tr.Pair, To: Ejected, Cause: t.ejected.cause, Trial: t.ejected.wait}}
	default:
		t.again(s.settings.Base, s.pairMost(k), k, now)
	}
	return nil
}

// PutOff records that a trial was not made: the next one is due soon.
func (s *Set) PutOff(tr Trial, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tried(tr); t != nil {
		t.trials.trying, t.trials.trial = false, now.Add(s.settings.Base)
	}
}

// note keeps what a trial has shown beside that it failed. Of none it keeps nothing.
func (t *track) note(k Kind, now time.Time) {
	switch {
	case t == nil:
	case k == Stuck:
		t.trials.stuck = now
	case k == Wrong:
		t.trials.wrong = true
	}
}

// WrongText records that a trial of one end has shown wrong text behind a pair's transfer.
func (s *Set) WrongText(p Pair, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings.Failures == 0 {
		return nil
	}
	s.activeUntil(now.Add(remembered))
	t := s.ofPair(p, now)
	t.trials.wrong = true
	if t.state == Ejected {
		return nil
	}
	t.eject(s.settings, pairRow, pairMax, Wrong, now)
	return []Change{{Pair: p, To: Ejected, Cause: t.ejected.cause, Trial: t.ejected.wait}}
}

// tried returns the track that a trial was made for, nil where it is over. It needs mu.
func (s *Set) tried(tr Trial) *track {
	t := s.leg[legKey{tr.ID, tr.Leg}]
	if tr.IsPair() {
		t = s.pair[tr.Pair]
	}
	if t == nil || t.ejected.era != tr.era || !t.trials.trying {
		return nil
	}
	return t
}

// Status is one leg or pair for people.
type Status struct {
	Replica   replica.ID `json:"replica,omitzero"`
	Leg       string     `json:"leg,omitzero"`
	Pair      *Pair      `json:"pair,omitempty"`
	State     State      `json:"state"`
	Cause     string     `json:"cause,omitzero"`
	Since     time.Time  `json:"since"`
	NextTrial time.Time  `json:"next_trial,omitzero"`
	Requests  float64    `json:"requests"` // of the last minute, weighed by age
	Failures  float64    `json:"failures"`
	Price     float64    `json:"price_s"` // what its failures add to the cost of a plan
}

// Status lists the legs and pairs that are out, half-open, or have failed lately, in order.
func (s *Set) Status(now time.Time) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Status
	for key, t := range s.leg {
		if st, worth := t.status(now); worth {
			st.Replica, st.Leg = key.id, key.leg.String()
			all = append(all, st)
		}
	}
	for p, t := range s.pair {
		if st, worth := t.status(now); worth {
			st.Pair, st.Price = &p, 0
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b Status) int {
		pa, pb := cmp.Or(a.Pair, &Pair{}), cmp.Or(b.Pair, &Pair{})
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Leg, b.Leg),
			cmp.Compare(pa.Prefill, pb.Prefill), cmp.Compare(pa.Decode, pb.Decode))
	})
	return all
}

func (t *track) status(now time.Time) (st Status, worth bool) {
	t.recent.decay(now)
	st = Status{
		State: t.state, Since: t.ejected.turned, Requests: t.recent.good + t.recent.bad,
		Failures: t.recent.bad, Price: t.recent.price(now),
	}
	if t.state != InUse {
		st.Cause = t.ejected.cause
	}
	if t.state == Ejected {
		st.NextTrial = t.trials.trial
	}
	return st, t.state != InUse || t.recent.bad >= 0.01
}
