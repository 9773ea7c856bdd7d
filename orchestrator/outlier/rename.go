package outlier

import "github.com/tandem-router/tandem/internal/replica"

// Rename lets what is known of replicas be known of them under the names that they have now. Requests and
// trials that are under way on one with another name say nothing any more: they go by its old one. A trial is
// due again.
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

// Now returns the pair by the names that its replicas have now; false where one of them has none.
func (p Pair) Now(to replica.Renames) (is Pair, has bool) {
	prefill, one := to.Now(p.Prefill)
	decode, other := to.Now(p.Decode)
	return Pair{prefill, decode}, one && other
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
