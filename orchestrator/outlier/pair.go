package outlier

import (
	"maps"
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Began records that the answer to a split request began well: neither end fails with every partner.
func (s *Set) Began(p Pair, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unloaded) == 0 {
		return nil
	}
	return append(s.endBegan(p.Decode, Decode, now), s.endBegan(p.Prefill, Prefill, now)...)
}

// endBegan forgets the failed loads of an end. Requests that also failed elsewhere were the cause of their
// failures, and an ejection for such failures is over. It needs mu.
func (s *Set) endBegan(id replica.ID, leg Leg, now time.Time) []Change {
	e := s.unloaded[id]
	if e == nil {
		return nil
	}
	delete(s.unloaded, id)
	t := s.of(legKey{id, leg}, now)
	t.recent.decay(now)
	e.decay(now)
	t.recent.excused += e.doubt.stands
	if e.doubt.stands == 0 || !t.ejected.byLoads || t.state != Ejected || t.trials.trying {
		return nil
	}
	t.restore(now)
	return s.change(legKey{id, leg}, t, true)
}

// Loaded notes that the blocks of a split request came over.
func (s *Set) Loaded(p Pair, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	if t == nil {
		return nil
	}
	t.recent.clear(now)
	t.recent.good++
	if t.state != HalfOpen {
		return nil
	}
	t.turn(InUse, now)
	return []Change{{Pair: p, To: InUse}}
}

// Suspect asks for a trial of a pair that is in use, since something speaks against it without saying enough.
// It reports whether one will be made: not again so soon after the last.
func (s *Set) Suspect(p Pair, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ofPair(p, now)
	if s.settings.Failures == 0 || t.state != InUse || t.trials.suspect || t.trials.trying ||
		now.Sub(t.trials.trial) < pairMax {
		return false
	}
	s.activeUntil(now.Add(remembered))
	t.trials.suspect, t.trials.trial = true, now
	return true
}

// NotLoaded notes that a split request failed in a way that the prefill replica, the decode replica or the
// path between the two may have caused. Other failures show the cause: a replica is at fault if it fails with
// two other replicas, with no success in between. Otherwise the pair is at fault.
func (s *Set) NotLoaded(p Pair, f Failure, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activeUntil(now.Add(remembered))
	changes := s.pairFailed(p, f, now)
	changes = append(changes, s.endFailed(p.Decode, Decode, p.Prefill, f, now)...)
	return append(changes, s.endFailed(p.Prefill, Prefill, p.Decode, f, now)...)
}

// pairFailed needs mu.
func (s *Set) pairFailed(p Pair, f Failure, now time.Time) []Change {
	t := s.ofPair(p, now)
	f.Took = 0 // a pair has no price
	t.recent.failed(f, now)
	if s.settings.Failures == 0 || !t.over(pairRow, 0, now) {
		return nil
	}
	t.eject(s.settings, pairRow, s.pairMost(f.Kind), f.Kind, now)
	return []Change{{Pair: p, To: Ejected, Cause: t.ejected.cause, Trial: t.ejected.wait}}
}

// pairMost is the longest time between two trials of a pair. A trial that gets stuck leaves blocks behind in
// both engines until the network gives up. Such trials are therefore made more and more rarely.
func (s *Set) pairMost(k Kind) time.Duration {
	if k == Stuck {
		return max(pairMax, s.settings.Max)
	}
	return pairMax
}

// StuckSince reports whether a trial of the pair has got stuck since then: a request that waits for blocks of
// that pair waits in vain.
func (s *Set) StuckSince(p Pair, then time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	return t != nil && t.state == Ejected && t.trials.stuck.After(then)
}

// unloaded holds the failed loads of one end since its last good load.
type unloaded struct {
	with  map[replica.ID]failedLoads
	at    time.Time // of the newest
	doubt doubt
	asOf  time.Time // when doubt was last decayed
}

func (e *unloaded) decay(now time.Time) {
	if d := now.Sub(e.asOf); d > 0 {
		e.doubt.decay(math.Exp(-d.Seconds() / window.Seconds()))
		e.asOf = now
	}
}

// failedLoads are the failed loads of one replica with another.
type failedLoads struct {
	weight float64
	n      int
	since  time.Time // time of the oldest: earlier failures are forgotten already
	at     time.Time // of the newest
}

// add returns f and one more of the given weight.
func (f failedLoads) add(weight float64, now time.Time) failedLoads {
	if f.n == 0 {
		f.since = now
	}
	return failedLoads{f.weight + weight, f.n + 1, f.since, now}
}

// less returns f without one failed load.
func (f failedLoads) less() failedLoads {
	return failedLoads{f.weight * float64(f.n-1) / float64(f.n), f.n - 1, f.since, f.at}
}

// unloadedAt returns the failed loads of an end, and none if the newest is long ago. It needs mu.
func (s *Set) unloadedAt(id replica.ID, now time.Time) *unloaded {
	if s.unloaded == nil {
		s.unloaded = map[replica.ID]*unloaded{}
	}
	e := s.unloaded[id]
	if e == nil || now.Sub(e.at) > window {
		e = &unloaded{with: map[replica.ID]failedLoads{}, asOf: now}
		s.unloaded[id] = e
	}
	e.decay(now)
	return e
}

// confirmEnd notes that an end failed a request that is well for certain, or is another process: the loads
// that stood are its own. It needs mu.
func (s *Set) confirmEnd(id replica.ID) {
	if e := s.unloaded[id]; e != nil {
		e.doubt.confirm()
	}
}

// endFailed notes a failed load of one end with the other. It needs mu.
func (s *Set) endFailed(id replica.ID, leg Leg, other replica.ID, f Failure, now time.Time) []Change {
	e, t := s.unloadedAt(id, now), s.of(legKey{id, leg}, now)
	e.at = now
	t.recent.excused = max(0, t.recent.excused-e.doubt.asked(f.Request))
	e.with[other] = e.with[other].add(t.recent.weigh(f.Kind, now), now)
	sum, several := e.sum(now)
	if s.settings.Failures == 0 || !several || sum < float64(s.settings.Failures) || t.state == Ejected {
		return nil
	}
	t.recent.bad += sum
	t.eject(s.settings, 0, s.settings.Max, f.Kind, now)
	t.ejected.cause, t.ejected.byLoads = "with every other replica: "+f.Kind.String(), true
	return s.change(legKey{id, leg}, t, true)
}

// sum adds up the failed loads of an end, and tells whether they were with several others.
func (e *unloaded) sum(now time.Time) (sum float64, several bool) {
	maps.DeleteFunc(e.with, func(_ replica.ID, f failedLoads) bool { return now.Sub(f.at) > window })
	for _, f := range e.with {
		sum += f.weight
	}
	return sum, len(e.with) > 1
}

// ExcuseLoad undoes a failed load of the given time. It is to [Set.NotLoaded] what [Attempt.Excuse] is to
// [Attempt.Bad].
func (s *Set) ExcuseLoad(p Pair, k Kind, cause bool, at, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := append(s.excuseEnd(p.Decode, Decode, p.Prefill, cause, at, now),
		s.excuseEnd(p.Prefill, Prefill, p.Decode, cause, at, now)...)
	t := s.pair[p]
	if t == nil || !t.recent.mayExcuse(k.weight(), at, cause, now) {
		return changes
	}
	t.recent.found(cause, now)
	if t.excuse(k.weight(), at, pairRow, 0, now) {
		changes = append(changes, Change{Pair: p, To: t.state})
	}
	return changes
}

// OwnLoad notes that the request whose blocks did not arrive succeeded elsewhere, so the request was not the
// cause.
func (s *Set) OwnLoad(p Pair, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []*track{
		s.ofPair(p, now), s.of(legKey{p.Prefill, Prefill}, now), s.of(legKey{p.Decode, Decode}, now),
	} {
		t.recent.decay(now)
		t.recent.own++
	}
}

// excuseEnd takes a failed load back from one end. at is the time of the failure. If a load has succeeded
// since, the end does not count this failure any more, and no other failure is taken back instead. It needs
// mu.
func (s *Set) excuseEnd(id replica.ID, leg Leg, other replica.ID, cause bool, at, now time.Time) []Change {
	e, t := s.unloadedAt(id, now), s.of(legKey{id, leg}, now)
	f, there := e.with[other]
	there = there && !f.since.After(at)
	if there && !e.doubt.mayExcuse(0, cause) {
		return nil
	}
	switch {
	case there && f.n > 1:
		e.with[other] = f.less()
	case there:
		delete(e.with, other)
	}
	t.recent.found(cause, now)
	sum, several := e.sum(now)
	if !t.ejected.byLoads || t.state != Ejected || t.trials.trying || several &&
		sum >= float64(s.settings.Failures) {
		return nil
	}
	t.restore(now)
	return s.change(legKey{id, leg}, t, true)
}

// PairsOut returns the pairs that are ejected.
func (s *Set) PairsOut(now time.Time) []Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Pair
	for p, t := range s.pair {
		if t.openItself(s.settings, now); t.state == Ejected {
			out = append(out, p)
		}
	}
	return out
}

// PairsWrong returns the ejected pairs that have given a wrong text. They must not be used, even if no other
// pair is left.
func (s *Set) PairsWrong() []Pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wrong []Pair
	for p, t := range s.pair {
		if t.state == Ejected && t.trials.wrong {
			wrong = append(wrong, p)
		}
	}
	return wrong
}

// WhyPairOut says for people why a pair is ejected, "" where it is not.
func (s *Set) WhyPairOut(p Pair) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := s.pair[p]; {
	case t == nil || t.state != Ejected:
		return ""
	case t.trials.wrong:
		return "what a trial of them brought gave a wrong text"
	}
	return "transfers between them failed lately"
}
