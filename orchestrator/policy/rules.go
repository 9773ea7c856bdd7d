package policy

import (
	"math"
	"math/rand/v2"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// TwoState follows the longest match while the pool is balanced, and sends to the least loaded replica while
// it is not.
type TwoState struct {
	Threshold float64 // share of the prompt from which a match decides
	// The pool is out of balance if the most loaded replica has so many requests more than the least loaded.
	Apart float64
	Times float64 // ... and so many times as many
}

// Choose decides by state.
func (r TwoState) Choose(p planner.Prompt, targets []planner.Target, rnd *rand.Rand) int {
	low, high := math.MaxInt, 0
	for i := range targets {
		low, high = min(low, targets[i].Load), max(high, targets[i].Load)
	}
	if float64(high-low) > r.Apart && float64(high) > r.Times*float64(low) {
		return leastLoaded(targets, rnd)
	}
	if best := longest(targets, rnd); float64(targets[best].Held) > r.Threshold*float64(p.Tokens) {
		return best
	}
	return leastLoaded(targets, rnd)
}

// Tracker follows the longest match where it is long enough and its replica not too loaded; otherwise it
// sends to the least loaded one.
type Tracker struct {
	Threshold float64 // share of the prompt from which on a match is followed
	Bound     float64 // requests that a replica may have, as a multiple of the pool's mean with the new one
}

// Choose follows or balances.
func (r Tracker) Choose(p planner.Prompt, targets []planner.Target, rnd *rand.Rand) int {
	best := longest(targets, rnd)
	b := &targets[best]
	if float64(b.Held) > r.Threshold*float64(p.Tokens) && b.Load < capacity(targets, r.Bound) {
		return best
	}
	return leastLoaded(targets, rnd)
}

// PrefixHash is consistent hashing of a prompt's head with bounded loads. Each head has its own order of all
// replicas, so that a replica that comes or goes moves only its own share; the first in that order that is
// not full is chosen. A prompt without a known head goes to the least loaded one.
type PrefixHash struct {
	Bound float64 // requests that a replica may have, as a multiple of the pool's mean with the new one
}

// Choose walks through the replicas in the head's order.
func (r PrefixHash) Choose(p planner.Prompt, targets []planner.Target, rnd *rand.Rand) int {
	if p.Head == 0 {
		return leastLoaded(targets, rnd)
	}
	full := capacity(targets, r.Bound)
	best := -1
	for i := range targets {
		t := &targets[i]
		if t.Load < full && (best < 0 || Drawn(p.Head, t.Name) > Drawn(p.Head, targets[best].Name)) {
			best = i
		}
	}
	return best
}

// Overlap adds weighted shares of cached tokens and of idleness. Its authors add health too, which is the
// same for all targets here. Where no replica has enough of the prompt, the hash of its head decides.
type Overlap struct {
	Overlap   float64 // weight of the overlap, as a share of the longest
	Load      float64 // weight of 1 - requests as a share of the most
	Threshold float64 // share of the prompt that some replica must have

	Otherwise PrefixHash
}

// Choose adds shares.
func (r Overlap) Choose(p planner.Prompt, targets []planner.Target, rnd *rand.Rand) int {
	longest, busiest := 0, 0
	for i := range targets {
		longest, busiest = max(longest, targets[i].Held), max(busiest, targets[i].Load)
	}
	if float64(longest) < r.Threshold*float64(p.Tokens) || longest == 0 {
		return r.Otherwise.Choose(p, targets, rnd)
	}
	return Least(targets, rnd, func(s *planner.Target) float64 {
		idle := 1 - float64(s.Load)/float64(max(busiest, 1))
		return -(r.Overlap*float64(s.Held)/float64(longest) + r.Load*idle)
	})
}

// capacity is how many requests a replica may have at most, the new one included, with loads bounded to a
// multiple of their mean.
func capacity(targets []planner.Target, bound float64) int {
	all := 1
	for i := range targets {
		all += targets[i].Load
	}
	return int(math.Ceil(max(bound, 1) * float64(all) / float64(len(targets))))
}

func leastLoaded(targets []planner.Target, rnd *rand.Rand) int {
	return Least(targets, rnd, func(s *planner.Target) float64 { return float64(s.Load) })
}

// longest is the one that holds most of the prompt, the less loaded of two.
func longest(targets []planner.Target, rnd *rand.Rand) int {
	return Least(targets, rnd, func(s *planner.Target) float64 { return float64(s.Load) - float64(s.Held)*1e6 })
}

// Least returns the index of the least cost, at random among equals; 0 for none.
func Least[T any](all []T, rnd *rand.Rand, cost func(*T) float64) int {
	best := 0
	ties := 0
	low := math.Inf(1)
	for i := range all {
		switch c := cost(&all[i]); {
		case c < low:
			best = i
			ties = 1
			low = c
		case c == low:
			if ties++; rnd.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// Drawn is how much a key is drawn to a replica: rendezvous hashing.
func Drawn(key, name uint64) uint64 {
	h := (key ^ (name+1)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>31) * 0x94d049bb133111eb
	return h ^ h>>29
}
