package scoring

import (
	"math"
	"math/rand/v2"
)

// Rule chooses one replica of a pool by what it is like itself, whatever the other pool is like. Rules are
// the policies of other routers, for people who know them and for comparison: they have thresholds where the
// sum of predicted seconds has prices.
type Rule interface {
	// Choose returns an index into seats, which has at least one.
	Choose(p Prompt, seats []Target, rnd *rand.Rand) int
}

// Prompt is what a rule sees of a request.
type Prompt struct {
	Tokens int    // at least 1
	Head   uint64 // names its first [HeadTokens] tokens, or all of a shorter one; 0 unknown
}

// HeadTokens is how much of a prompt decides where hashing sends it.
const HeadTokens = 256

// Target is what a rule sees of one replica. Load is what the router knows to be there at this moment, not
// what was reported some time ago.
type Target struct {
	Name uint64 // of the replica, the same for every router
	Hot  int    // leading tokens of the prompt that it has in GPU memory
	Held int    // leading tokens that it has in any tier, at least Hot
	Load int    // requests in flight there
}

// TwoState follows the longest match while the pool is balanced, and sends to the least loaded replica while
// it is not.
type TwoState struct {
	Threshold float64 // share of the prompt from which on a match is followed
	// The pool is out of balance where the most loaded has so many requests more than the least loaded.
	Apart float64
	Times float64 // ... and so many times as many
}

// Choose decides by state.
func (r TwoState) Choose(p Prompt, seats []Target, rnd *rand.Rand) int {
	low, high := math.MaxInt, 0
	for i := range seats {
		low, high = min(low, seats[i].Load), max(high, seats[i].Load)
	}
	if float64(high-low) > r.Apart && float64(high) > r.Times*float64(low) {
		return leastLoaded(seats, rnd)
	}
	if best := longest(seats, rnd); float64(seats[best].Held) > r.Threshold*float64(p.Tokens) {
		return best
	}
	return leastLoaded(seats, rnd)
}

// Tracker follows the longest match where it is long enough and its replica not too loaded; otherwise it
// sends to the least loaded one.
type Tracker struct {
	Threshold float64 // share of the prompt from which on a match is followed
	Bound     float64 // requests that a replica may have, as a multiple of the pool's mean with the new one
}

// Choose follows or balances.
func (r Tracker) Choose(p Prompt, seats []Target, rnd *rand.Rand) int {
	best := longest(seats, rnd)
	if float64(seats[best].Held) > r.Threshold*float64(p.Tokens) && seats[best].Load < capacity(seats, r.Bound) {
		return best
	}
	return leastLoaded(seats, rnd)
}

// PrefixHash is consistent hashing of a prompt's head with bounded loads. Each head has its own order of all
// replicas, so that a replica that comes or goes moves only its own share; the first in that order that is
// not full is chosen. A prompt without a known head goes to the least loaded one.
type PrefixHash struct {
	Bound float64 // requests that a replica may have, as a multiple of the pool's mean with the new one
}

// Choose walks through the replicas in the head's order.
func (r PrefixHash) Choose(p Prompt, seats []Target, rnd *rand.Rand) int {
	if p.Head == 0 {
		return leastLoaded(seats, rnd)
	}
	full := capacity(seats, r.Bound)
	best := -1
	for i := range seats {
		if seats[i].Load < full && (best < 0 || Drawn(p.Head, seats[i].Name) > Drawn(p.Head, seats[best].Name)) {
			best = i
		}
	}
	return best
}

// Overlap adds weighted shares of cached tokens, by tier, and of idleness. Its authors add health too, which
// is the same for all that may be chosen here. Where nobody has enough of the prompt, the hash of its head
// decides.
type Overlap struct {
	Overlap float64 // weight of the overlap, as a share of the longest
	Load    float64 // weight of 1 - requests as a share of the most

	Hot       float64 // what a token in GPU memory counts
	Warm      float64 // what one in any other tier counts
	Threshold float64 // share of the prompt that somebody must have

	Otherwise PrefixHash
}

// Choose adds shares.
func (r Overlap) Choose(p Prompt, seats []Target, rnd *rand.Rand) int {
	longest, busiest := 0, 0
	for i := range seats {
		longest, busiest = max(longest, seats[i].Held), max(busiest, seats[i].Load)
	}
	if float64(longest) < r.Threshold*float64(p.Tokens) || longest == 0 {
		return r.Otherwise.Choose(p, seats, rnd)
	}
	return Least(seats, rnd, func(s *Target) float64 {
		overlap := (r.Hot*float64(s.Hot) + r.Warm*float64(s.Held-s.Hot)) / float64(longest)
		idle := 1 - float64(s.Load)/float64(max(busiest, 1))
		return -(r.Overlap*overlap + r.Load*idle)
	})
}

// capacity is how many requests a replica may have at most, the new one included, with loads bounded to a
// multiple of their mean.
func capacity(seats []Target, bound float64) int {
	all := 1
	for i := range seats {
		all += seats[i].Load
	}
	return int(math.Ceil(max(bound, 1) * float64(all) / float64(len(seats))))
}

func leastLoaded(seats []Target, rnd *rand.Rand) int {
	return Least(seats, rnd, func(s *Target) float64 { return float64(s.Load) })
}

// longest is the one that holds most of the prompt, the less loaded of two.
func longest(seats []Target, rnd *rand.Rand) int {
	return Least(seats, rnd, func(s *Target) float64 { return float64(s.Load) - float64(s.Held)*1e6 })
}

// Least returns the place of what costs least, by chance among equals; 0 of none.
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
