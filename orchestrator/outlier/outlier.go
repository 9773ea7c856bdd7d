// Package outlier counts the failures of replicas and pairs. It decides what the failures cost in a plan,
// what is ejected, for how long, and when it may come back.
//
// A leg of a replica, or a pair of replicas, is in one of three states:
//
//	in use ---failures in a row, or too large a share---> ejected ---a trial goes well---> half-open
//	   ^                                                  ^  ^  '-a trial fails: waits longer-'   |  |
//	   |                                                  |  '------------- a failure ------------'  |
//	   '----------------------------- requests go well ----------------------------------------------'
//
// The set says which are ejected. The planner decides whether to leave them out: never more than half of the
// replicas that could serve a request.
package outlier

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Pair is a prefill and a decode replica together.
type Pair struct {
	Prefill replica.ID `json:"prefill"`
	Decode  replica.ID `json:"decode"`
}

// Now returns the pair by the present names of its replicas; false if a replica has none.
func (p Pair) Now(to replica.Renames) (is Pair, has bool) {
	prefill, one := to.Now(p.Prefill)
	decode, other := to.Now(p.Decode)
	return Pair{prefill, decode}, one && other
}

// Settings are the operator's settings of ejection. The zero value ejects nothing, but failures still have a
// price.
type Settings struct {
	Failures int // in a row after which a leg is ejected; 0: nobody is ever ejected
	// Share of the requests of the last minute that failed, from which it is ejected, 0..1; 0: failures in a row
	// alone count.
	Share float64
	Base  time.Duration // from an ejection to the first trial; the time doubles from one trial to the next
	Max   time.Duration // the longest time to a trial

	// Trials says that a caller makes the trials of [Set.Due]. Otherwise the next request is the trial.
	Trials bool
}

const (
	// Time in which old failures fade by a factor of e, and in which the time to the next trial halves while a
	// leg is in use.
	window     = time.Minute
	fewest     = 5               // failures within the window below which their share means nothing
	pairRow    = 2               // failed transfers in a row after which a pair is ejected
	pairMax    = 5 * time.Second // between two trials of a pair, which cost no client anything
	fullAt     = 64              // requests at once from which a half-open leg is in use again
	remembered = 10 * time.Minute
	// Seconds that a failed request is taken to have cost, at most: a stream that breaks off late has answered
	// until then.
	mostLost = 5
)

// costBeside is what a failure costs beside its own time, in seconds. It is the cost of a place in the retry
// budget or, if the budget is full, of a client's answer.
const costBeside = 1

// Set is the state of all legs and pairs. The zero value works. Safe for concurrent use.
type Set struct {
	until atomic.Int64 // unix nanoseconds; later nothing is out and no failure counts

	mu       sync.Mutex // guards the following
	settings Settings
	leg      map[legKey]*track
	pair     map[Pair]*track
	unloaded map[replica.ID]*unloaded // by end
}

type legKey struct {
	id  replica.ID
	leg Leg
}

// Configure puts the settings to in force. Ejected legs and pairs stay ejected until a trial.
func (s *Set) Configure(to Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = to
}

// Active reports whether a leg or pair is ejected or has failed lately. If not, [Set.Look] has nothing to
// say.
func (s *Set) Active(now time.Time) bool { return now.UnixNano() < s.until.Load() }

func (s *Set) activeUntil(t time.Time) {
	for n, was := t.UnixNano(), s.until.Load(); n > was; was = s.until.Load() {
		if s.until.CompareAndSwap(was, n) {
			return
		}
	}
}

// of returns the track of a leg, a new one where there is none. It needs mu.
func (s *Set) of(key legKey, now time.Time) *track { return trackOf(&s.leg, key, now) }

// ofPair does so for a pair. It needs mu.
func (s *Set) ofPair(p Pair, now time.Time) *track { return trackOf(&s.pair, p, now) }

func trackOf[K comparable](tracks *map[K]*track, key K, now time.Time) *track {
	if *tracks == nil {
		*tracks = map[K]*track{}
	}
	t := (*tracks)[key]
	if t == nil {
		t = &track{recent: outcomes{at: now}, ejected: ejection{turned: now}}
		(*tracks)[key] = t
	}
	return t
}

// Change is a leg or a pair that went from one state to another, for a line in the log.
type Change struct {
	ID    replica.ID // zero for a pair
	Leg   Leg
	Pair  Pair // zero for a leg
	To    State
	Cause string        // of an ejection
	Trial time.Duration // until the next trial, if To is Ejected
}

// Now returns the present state of the leg or pair of c. Changes may be reported out of order.
func (s *Set) Now(c Change) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.leg[legKey{c.ID, c.Leg}]
	if c.ID == "" {
		t = s.pair[c.Pair]
	}
	c.To = InUse
	c.Cause = ""
	c.Trial = 0
	if t != nil {
		c.To = t.state
		c.Cause = t.ejected.cause
		c.Trial = t.ejected.wait
	}
	return c
}

// change makes a change of a leg's new state, if it is new. It needs mu.
func (s *Set) change(key legKey, t *track, changed bool) []Change {
	if !changed {
		return nil
	}
	return []Change{{ID: key.id, Leg: key.leg, To: t.state, Cause: t.ejected.cause, Trial: t.ejected.wait}}
}

// Verdict is the state of a leg or a pair for a plan.
type Verdict struct {
	Out   bool          // ejected, or half-open and full
	Wait  time.Duration // from its ejection to its trial: it grows with every trial that fails
	Price float64       // seconds that its failures are expected to cost the request
}

// Look tells what speaks against a leg.
func (s *Set) Look(id replica.ID, leg Leg, now time.Time) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.leg[legKey{id, leg}]
	if t == nil {
		return Verdict{}
	}
	t.openItself(s.settings, now)
	v := Verdict{Out: t.out(), Price: t.recent.price(now)}
	if v.Out {
		v.Wait = t.ejected.wait
	}
	return v
}

// PairOut reports whether a pair is ejected.
func (s *Set) PairOut(p Pair) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	return t != nil && t.state == Ejected
}

// PairKnown reports whether a pair is ejected, and was by the given time.
func (s *Set) PairKnown(p Pair, before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	return t != nil && t.state == Ejected && !t.ejected.turned.After(before)
}

// Known reports whether something was known to be wrong with the leg at the time before, and still is. A
// request that failed there is then not necessarily the cause.
func (s *Set) Known(id replica.ID, leg Leg, before time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.leg[legKey{id, leg}]
	return t != nil && t.state != InUse && !t.ejected.turned.After(before)
}

// PairExcused is [Attempt.Excused] of a pair.
func (s *Set) PairExcused(p Pair) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	return t != nil && t.recent.excused > t.recent.own
}

// Restarted notes that the engine of a replica is another process now. The reason of an ejection may be
// gone. So a trial is due, and the times between trials start again from the shortest.
func (s *Set) Restarted(id replica.ID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmEnd(id)
	for key, t := range s.leg {
		if key.id == id {
			t.startAnew(now)
		}
	}
	for p, t := range s.pair {
		if p.Prefill == id || p.Decode == id {
			t.startAnew(now)
		}
	}
}

// Forgive forgets the failures of a replica, alone and in pairs.
func (s *Set) Forgive(id replica.ID) { s.Keep(func(other replica.ID) bool { return other != id }) }

// Keep forgets the replicas that are not members any more.
func (s *Set) Keep(member func(id replica.ID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.leg, func(key legKey, _ *track) bool { return !member(key.id) })
	maps.DeleteFunc(s.pair, func(p Pair, _ *track) bool { return !member(p.Prefill) || !member(p.Decode) })
	maps.DeleteFunc(s.unloaded, func(id replica.ID, _ *unloaded) bool { return !member(id) })
}

// Rename moves the tracks of replicas to their present names. Requests and trials under way on a renamed
// replica do not count any more, because they report by its old name. A trial is due again.
func (s *Set) Rename(to replica.Renames) {
	if len(to) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leg = replica.Rekey(s.leg, func(was legKey) (legKey, bool) {
		id, has := to.Now(was.id)
		return legKey{id, was.leg}, has
	})
	s.pair = replica.Rekey(s.pair, func(was Pair) (Pair, bool) { return was.Now(to) })
	s.unloaded = replica.Rekey(s.unloaded, to.Now)
	for _, e := range s.unloaded {
		e.with = replica.Rekey(e.with, to.Now)
	}
	for _, id := range to {
		s.endUnderway(id)
	}
}

// endUnderway forgets the trials and the requests that run on a replica, and on its pairs. It needs mu.
func (s *Set) endUnderway(id replica.ID) {
	for key, t := range s.leg {
		if key.id == id {
			t.trials.trying, t.half.flying = false, 0
		}
	}
	for p, t := range s.pair {
		if p.Prefill == id || p.Decode == id {
			t.trials.trying = false
		}
	}
}
