package outlier

import (
	"maps"
	"time"

	"tandem/internal/replica"
)

// Began notes that the answer to a split request began well: neither of its ends fails with everybody.
func (s *Set) Began(p Pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unloaded) > 0 {
		delete(s.unloaded, p.Prefill)
		delete(s.unloaded, p.Decode)
	}
}

// Loaded notes that the blocks of a split request came over.
func (s *Set) Loaded(p Pair, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.pair[p]
	if t == nil {
		return nil
	}
	t.decay(now)
	t.good++
	t.row = 0
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
	if s.settings.Failures == 0 || t.state != InUse || t.suspect || t.trying || now.Sub(t.trial) < pairMax {
		return false
	}
	s.activeUntil(now.Add(remembered))
	t.suspect, t.trial = true, now
	return true
}

// NotLoaded notes that a split request failed in a way that the prefill replica, the decode replica or the
// path between them may have caused. Whose fault it is shows in who else fails: a replica that fails with two
// others and with nobody well in between is at fault itself, else the pair is.
func (s *Set) NotLoaded(p Pair, k Kind, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activeUntil(now.Add(remembered))
	changes := s.pairFailed(p, k, now)
	changes = append(changes, s.endFailed(p.Decode, Decode, p.Prefill, k, now)...)
	return append(changes, s.endFailed(p.Prefill, Prefill, p.Decode, k, now)...)
}

// pairFailed needs mu.
func (s *Set) pairFailed(p Pair, k Kind, now time.Time) []Change {
	t := s.ofPair(p, now)
	t.failed(k, 0, now)
	if s.settings.Failures == 0 || !t.over(pairRow, 0, now) {
		return nil
	}
	t.eject(s.settings, pairRow, s.pairMost(k), k, now)
	return []Change{{Pair: p, To: Ejected, Cause: t.cause, Trial: t.wait}}
}

// pairMost is the longest time between two trials of a pair. One that gets stuck leaves blocks behind in both
// engines until the network gives up, so that such trials are made ever more rarely.
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
	return t != nil && t.state == Ejected && t.stuck.After(then)
}

// failedLoads are those of one replica with another since the last good one.
type failedLoads struct {
	weight float64
	n      int
	at     time.Time // of the newest
}

// endFailed notes a failed load of one end with the other. It needs mu.
func (s *Set) endFailed(id replica.ID, leg Leg, other replica.ID, k Kind, now time.Time) []Change {
	if s.unloaded == nil {
		s.unloaded = map[replica.ID]map[replica.ID]failedLoads{}
	}
	with := s.unloaded[id]
	if with == nil {
		with = map[replica.ID]failedLoads{}
		s.unloaded[id] = with
	}
	t := s.of(legKey{id, leg}, now)
	with[other] = failedLoads{with[other].weight + t.weigh(k, now), with[other].n + 1, now}
	sum, several := s.unloadedOf(id, now)
	if s.settings.Failures == 0 || !several || sum < float64(s.settings.Failures) || t.state == Ejected {
		return nil
	}
	t.bad += sum
	t.eject(s.settings, 0, s.settings.Max, k, now)
	t.cause, t.byLoads = "with every other replica: "+k.String(), true
	return s.told(legKey{id, leg}, t, true)
}

// unloadedOf sums up the failed loads of a replica, and tells whether they were with several others. It needs
// mu.
func (s *Set) unloadedOf(id replica.ID, now time.Time) (sum float64, several bool) {
	with := s.unloaded[id]
	maps.DeleteFunc(with, func(_ replica.ID, f failedLoads) bool { return now.Sub(f.at) > window })
	for _, f := range with {
		sum += f.weight
	}
	return sum, len(with) > 1
}

// ExcuseLoad takes back that blocks did not come over at the given time. cause is as for [Attempt.Excuse].
func (s *Set) ExcuseLoad(p Pair, k Kind, cause bool, at, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := append(s.excuseEnd(p.Decode, Decode, p.Prefill, cause, now),
		s.excuseEnd(p.Prefill, Prefill, p.Decode, cause, now)...)
	t := s.pair[p]
	if t != nil {
		t.found(cause, now)
	}
	if t != nil && t.excuse(k.weight(), at, pairRow, 0, now) {
		changes = append(changes, Change{Pair: p, To: t.state})
	}
	return changes
}

// OwnLoad notes that the request whose blocks did not come over went well elsewhere, so that it was not the
// cause.
func (s *Set) OwnLoad(p Pair, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []*track{
		s.ofPair(p, now), s.of(legKey{p.Prefill, Prefill}, now), s.of(legKey{p.Decode, Decode}, now),
	} {
		t.decay(now)
		t.own++
	}
}

// excuseEnd needs mu.
func (s *Set) excuseEnd(id replica.ID, leg Leg, other replica.ID, cause bool, now time.Time) []Change {
	with := s.unloaded[id]
	t := s.of(legKey{id, leg}, now)
	f, there := with[other]
	if there && f.n > 1 {
		with[other] = failedLoads{f.weight * float64(f.n-1) / float64(f.n), f.n - 1, f.at}
	} else {
		delete(with, other)
	}
	t.found(cause, now)
	sum, several := s.unloadedOf(id, now)
	if !t.byLoads || t.state != Ejected || t.trying || several && sum >= float64(s.settings.Failures) {
		return nil
	}
	t.restore(now)
	return s.told(legKey{id, leg}, t, true)
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
