package scoring

import (
	"math"
	"slices"
)

// bounds are the least that receivers add to the cost of their pairs. They keep most pairs from being priced:
// the bounds already tell that a pair cannot be among the best.
type bounds struct {
	floors   []float64   // of each receiver; +Inf if it has no pair, or is excluded
	order    []candidate // the receivers with a pair, the lowest floor first
	leaving  float64     // of the ideal sender
	crowding float64     // of the ideal sender
	fastest  float64     // seconds of the shortest transfer of this prompt; +Inf without a pair
}

// candidate is a receiver with its floor: the least cost of its pairs beyond what the sender adds.
type candidate struct {
	floor float64
	at    int32 // in Receivers
}

// bound computes the bounds. A receiver's floor is its price over its fastest link, with an ideal sender:
// one that costs nothing itself and is as good as any sender in everything else. The floor plus a sender's
// own cost is never above the price of their pair, rounding included, because both sum the same numbers in
// the same order, each no larger in the floor.
func (t *Table) bound() {
	ideal, soon := t.idealSender()
	t.leaving, t.crowding = ideal.Leaving, ideal.crowding()
	t.fastest = math.Inf(1)
	t.floors, t.order = t.floors[:0], t.order[:0]
	for j, out := range t.receiverOut {
		floor, fastest := math.Inf(1), t.Fastest[t.Col[j]]
		if !out && !math.IsInf(fastest, 1) {
			floor = ideal.priceAt(&t.Receivers[j], fastest, soon)
			t.fastest = min(t.fastest, t.Receivers[j].Bytes*fastest)
			t.order = append(t.order, candidate{floor, int32(j)})
		}
		t.floors = append(t.floors, floor)
	}
	slices.SortFunc(t.order, func(a, b candidate) int {
		switch {
		case a.floor < b.floor:
			return -1
		case a.floor > b.floor:
			return 1
		}
		return int(a.at - b.at)
	})
}

// boundOf returns the least that sender s adds to the floor of every receiver. Beyond its own cost, the
// requests that use the sender's link wait at least for the shortest transfer. The second number may be
// rounded up, so a part of the sum far above the rounding is taken off.
func (t *Table) boundOf(s *Sender) float64 {
	more := linkContention(t.fastest, s.Leaving-t.leaving, s.crowding()-t.crowding)
	more -= roundingShare * (more + math.Abs(s.cost) + math.Abs(t.order[len(t.order)-1].floor))
	return s.cost + max(0, more)
}

// roundingShare is far more than the share of a cost that is lost when the cost's terms are added.
const roundingShare = 1e-12

// idealSender returns a sender as good as any. A late prompt hides transfers, and an early one gives an early
// first token. So Ready is the latest of all senders, and soon is the earliest.
func (t *Table) idealSender() (s Sender, soon float64) {
	soon = math.Inf(1)
	s = Sender{Outbox: math.Inf(1), Leaving: math.Inf(1)}
	for i, out := range t.senderOut {
		if o := &t.Senders[i]; !out {
			s.Ready, soon = max(s.Ready, o.Ready), min(soon, o.Ready)
			s.Outbox, s.Leaving = min(s.Outbox, o.Outbox), min(s.Leaving, o.Leaving)
		}
	}
	return s, soon
}

// OtherSender returns the cheapest pair of c's receiver with another sender. Among equal pairs it takes the
// first in the table. Its cost is infinite without such a pair. Call it after [Table.Choose], whose bounds
// exclude nearly every pair: a column of rates is spread over as many places in memory as there are senders.
func (t *Table) OtherSender(c Choice) Choice {
	best := none
	for i := range t.Senders {
		if t.Senders[i].cost+t.floors[c.Decode] >= best.Cost || i == int(c.Prefill) {
			continue
		}
		if cost, ok := t.Cost(i, int(c.Decode)); ok && cost < best.Cost {
			best = Choice{int32(i), c.Decode, cost}
		}
	}
	return best
}

// OtherReceiver is OtherSender for c's sender with another receiver.
func (t *Table) OtherReceiver(c Choice) Choice {
	best, own := none, t.Senders[c.Prefill].cost
	for j, floor := range t.floors {
		if own+floor >= best.Cost || j == int(c.Decode) {
			continue
		}
		if cost, ok := t.Cost(int(c.Prefill), j); ok && cost < best.Cost {
			best = Choice{c.Prefill, int32(j), cost}
		}
	}
	return best
}
