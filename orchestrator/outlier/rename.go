package outlier

import "github.com/tandem-router/tandem/internal/replica"

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

// Now returns the pair by the present names of its replicas; false if a replica has none.
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
