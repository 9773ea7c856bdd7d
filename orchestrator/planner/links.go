package planner

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/scoring"
)

// LinkSpeed is what was learned of the path between two replicas.
type LinkSpeed struct {
	Pairing
	BytesPerSecond float64
	Samples        int // transfers that it was learned from
}

// LinkSpeeds lists the paths of which something was learned, as of the newest plan, in no order. Safe for
// concurrent use.
func (pl *Planner) LinkSpeeds() []LinkSpeed {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.pairs.prefill == nil || pl.pairs.decode == nil {
		return nil // nothing was planned since the policy changed
	}
	var all []LinkSpeed
	for pair, link := range pl.pairs.links {
		p, known := pl.pairs.slots[pair.Prefill]
		d, both := pl.pairs.slots[pair.Decode]
		if !known || !both || link.Samples() == 0 {
			continue // a replica of it has left
		}
		seed := pl.policy.seed(pl.pairs.prefill.Replicas[p], pl.pairs.decode.Replicas[d])
		all = append(all, LinkSpeed{pair, 1 / link.perByte(seed, pl.pairs.now), link.Samples()})
	}
	return all
}

// link is what was learned of a path, and when. Of one that was slow nobody asks for blocks, so that nothing
// would be learned when it is well again: the longer nothing came over it, the less of that is believed. Nil
// knows nothing.
type link struct {
	scoring.Link
	at time.Time // of the newest transfer
}

const (
	slowFor  = 10 * time.Second // in which what was learned of a slow link is believed
	slowHalf = 30 * time.Second // in which half of the factor it is slower by, as a logarithm, is forgotten then
	slower   = 1.1              // times a seed, from which on a link counts as slow
)

// perByte is the seconds a byte that are believed.
func (l *link) perByte(seed float64, now time.Time) float64 {
	if l == nil {
		return seed
	}
	learned := l.PerByte(seed)
	since := l.at.Add(slowFor)
	if learned <= seed || l.at.IsZero() || !now.After(since) {
		return learned
	}
	idle := now.Sub(since)
	return seed * math.Pow(learned/seed, math.Exp2(-idle.Seconds()/slowHalf.Seconds()))
}

// learn takes in a transfer. If less was believed of the link by then, and it bears that out, what is known
// begins anew from there: all that was seen before was in worse times.
func (l *link) learn(seed, bytes, seconds float64, now time.Time) {
	believed := l.perByte(seed, now)
	if believed < l.PerByte(seed) && seconds <= bytes*believed {
		fresh := scoring.Link{}
		if fresh.Restore(seed, believed, 1) {
			l.Link = fresh
		}
	}
	l.Learn(seed, bytes, seconds)
	l.at = now
}
