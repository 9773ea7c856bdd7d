package outlier

import (
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

// Suspect asks for a trial of a pair that is in use, since something speaks against it without saying enough. It reports whether one will be made: not again
// so soon after the last.
func (s *Set) Suspect(p Pair, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ofPair(p, now)
	if t.state != InUse || t.suspect || t.trying || now.Sub(t.trial) < pairMax {
		return false
	}
	s.activeUntil(now.Add(remembered))
	t.suspect, t.trial = true, now
	return true
}

// NotLoaded notes that a split request failed in a way that the prefill replica, the decode replica or the path between them may have caused. Whose fault it
// is shows in who else fails: a replica that fails with two others and with nobody well in between is at fault itself, else the pair is.
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
	t.eject(s.settings, pairRow, pairMax, k, now)
	return []Change{{Pair: p, To: Ejected, Cause: t.cause, Trial: t.wait}}
}

// endFailed notes a failed load of one end with the other. It needs mu.
func (s *Set) endFailed(id replica.ID, leg Leg, other replica.ID, k Kind, now time.Time) []Change {
	if s.unloaded == nil {
		s.unloaded = map[replica.ID]map[replica.ID]float64{}
	}
	with := s.unloaded[id]
	if with == nil {
		with = map[replica.ID]float64{}
		s.unloaded[id] = with
	}
	with[other] += k.weight()
	sum := 0.0
	for _, w := range with {
		sum += w
	}
	t := s.of(legKey{id, leg}, now)
	if s.settings.Failures == 0 || len(with) < 2 || sum < float64(s.settings.Failures) || t.state == Ejected {
		return nil
	}
	t.bad, t.row = t.bad+sum, t.row+sum
	t.eject(s.settings, 0, s.settings.Max, k, now)
	t.cause = "with every other replica: " + k.String()
	delete(s.unloaded, id)
	return s.told(legKey{id, leg}, t, true)
}

// ExcuseLoad takes back that blocks did not come over.
func (s *Set) ExcuseLoad(p Pair, k Kind, now time.Time) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range map[replica.ID]replica.ID{p.Prefill: p.Decode, p.Decode: p.Prefill} {
		if with := s.unloaded[id]; with[other] > 0 {
			if with[other] -= k.weight(); with[other] <= 0 {
				delete(with, other)
			}
		}
	}
	t := s.pair[p]
	if t == nil || !t.excuse(k, pairRow, now) {
		return nil
	}
	return []Change{{Pair: p, To: t.state}}
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
