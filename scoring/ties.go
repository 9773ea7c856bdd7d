package scoring

import (
	"math"
	"math/rand/v2"
)

// Ties says which plans are as good as the best: plans within the larger of the two margins.
type Ties struct {
	Absolute, Relative float64
	SplitFirst         bool // a Local plan must be better than every Split, not equal
}

// Limit returns the cost up to which a plan is as good as the cheapest, which costs least.
func (t Ties) Limit(least float64) float64 { return least + t.Margin(least) }

// Margin returns how much more than the best a plan may cost to tie with it.
func (t Ties) Margin(cost float64) float64 {
	return max(t.Absolute, t.Relative*min(math.Abs(cost), tieCostMost))
}

// tieCostMost bounds the cost, in seconds, that the relative margin applies to. A larger cost is mostly the
// wait of many other requests. It is no reason to choose a replica that fails, is full or is far away.
const tieCostMost = 5

// draw draws one of the plans that tie with least. The exact minimum would send every request the same way
// until the next report, and a replica that was slow and has recovered would get no request in an idle fleet.
// A sender is drawn first, then one of its pairs. So most pairs of an idle fleet, where nearly all pairs tie,
// are never priced. ties is the number of tied plans, if each sender has as many tied pairs as this one.
func (t *Table) draw(rnd *rand.Rand, least Choice) (chosen Choice, ties int) {
	limit := t.Limit(least.Cost)
	i, senders, receivers := t.drawSender(rnd, limit)
	splits := senders * receivers
	if ties = splits; !t.SplitFirst || least.Prefill < 0 || splits == 0 {
		for j := range t.Local {
			ties += t.tiedLocal(j, limit)
		}
	}
	at := 0
	if ties > 1 {
		at = rnd.IntN(ties)
	}
	if at < splits {
		_, chosen = t.tiedPairs(i, limit, at%receivers)
		return chosen, ties
	}
	at -= splits
	for j := range t.Local {
		if at -= t.tiedLocal(j, limit); at < 0 {
			return Choice{-1, int32(j), t.Local[j]}, ties
		}
	}
	return least, ties
}

// drawSender draws a sender with a pair that costs no more than limit. It returns the sender, the number of
// senders that may have such a pair, and the number of such pairs of this sender; zeros without a pair.
func (t *Table) drawSender(rnd *rand.Rand, limit float64) (sender, senders, pairs int) {
	t.tied = t.tied[:0]
	for i, out := range t.senderOut {
		if !out && len(t.order) > 0 && t.Senders[i].cost+t.order[0].floor <= limit {
			t.tied = append(t.tied, int32(i))
		}
	}
	for n := len(t.tied); n > 0; n-- {
		at := 0
		if n > 1 {
			at = rnd.IntN(n)
		}
		i := int(t.tied[at])
		if pairs, _ := t.tiedPairs(i, limit, -1); pairs > 0 {
			return i, n, pairs
		}
		t.tied[at] = t.tied[n-1]
	}
	return 0, 0, 0
}

// tiedPairs returns how many pairs of sender i cost no more than limit, and the pair at a place among them.
func (t *Table) tiedPairs(i int, limit float64, place int) (n int, found Choice) {
	s, rates := &t.Senders[i], t.rates(i)
	own := t.boundOf(s)
	for _, r := range t.order {
		if own+r.floor > limit {
			break // and so are all that follow
		}
		perByte := rates[t.Col[r.at]]
		if perByte < 0 {
			continue
		}
		if cost := s.price(&t.Receivers[r.at], perByte); cost <= limit && !t.pairOut(t.place(i, int(r.at))) {
			if n == place {
				found = Choice{int32(i), r.at, cost}
			}
			n++
		}
	}
	return n, found
}

// tiedLocal is 1 if decode candidate j alone costs no more than limit, and 0 otherwise.
func (t *Table) tiedLocal(j int, limit float64) int {
	if cost, ok := t.Alone(j); ok && cost <= limit {
		return 1
	}
	return 0
}
