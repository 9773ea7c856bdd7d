package scoring

import (
	"math"
	"slices"
	"sort"
)

// bounds is what keeps most pairs out: the least that each side adds to the cost of a pair.
type bounds struct {
	least  []float64   // of each sender, beyond the floor of whoever receives
	floors []float64   // of each receiver; +Inf where it can be in no pair, or is excluded
	order  []candidate // those receivers that can, the lowest floor first
	few    []int32     // see [Table.reachable]
	ready  float64     // seconds until the first sender is ready
}

// candidate is a receiver with its floor.
type candidate struct {
	floor float64
	at    int32 // in Receivers
}

// bound works out the bounds: what a receiver's pair costs over the fastest of its links with a sender that
// costs nothing itself, and is as good as any in everything else. The same sum of numbers that are not more
// is not more, rounding included, so that with what a sender costs itself it is never more than their price.
func (t *Table) bound() {
	ideal := t.idealSender()
	t.floors, t.order = t.floors[:0], t.order[:0]
	for j, out := range t.receiverOut {
		floor, fastest := math.Inf(1), t.Columns[t.Col[j]].Least
		if !out && !math.IsInf(fastest, 1) {
			floor = ideal.price(&t.Receivers[j], fastest)
			t.order = append(t.order, candidate{floor, int32(j)})
		}
		t.floors = append(t.floors, floor)
	}
	t.boundSenders(&ideal)
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

// boundSenders works out what each sender adds: what it costs itself and, where that is much, what its
// transfers keep waiting beyond those of the ideal one. The second is added up in another order than in a
// price, and counts a millionth less for it.
func (t *Table) boundSenders(ideal *Sender) {
	own := math.Inf(1) // seconds that the blocks take at least, for any receiver
	for _, c := range t.order {
		own = min(own, t.times(c.at).Least)
	}
	t.least = t.least[:0]
	for i := range t.Senders {
		s := &t.Senders[i]
		least := s.cost
		if more := linkContention(own, s.Leaving-ideal.Leaving); more > 1e-3 {
			least += more * (1 - 1e-6)
		}
		t.least = append(t.least, least)
	}
}

func (t *Table) idealSender() Sender {
	s := Sender{Outbox: math.Inf(1), Leaving: math.Inf(1)}
	t.ready = math.Inf(1)
	for i, out := range t.senderOut {
		if o := &t.Senders[i]; !out {
			t.ready, s.Ready = min(t.ready, o.Ready), max(s.Ready, o.Ready)
			s.Outbox, s.Leaving = min(s.Outbox, o.Outbox), min(s.Leaving, o.Leaving)
		}
	}
	return s
}

// reachable returns the receivers with which sender i may make a pair that costs no more than limit, in the
// order of the table. It holds until the next call.
func (t *Table) reachable(i int, limit float64) []int32 {
	own := t.least[i]
	n := sort.Search(len(t.order), func(k int) bool { return own+t.order[k].floor > limit })
	t.few = t.few[:0]
	if n <= sortsFaster {
		for _, c := range t.order[:n] {
			t.few = append(t.few, c.at)
		}
		slices.Sort(t.few)
		return t.few
	}
	for j, floor := range t.floors {
		if !(own+floor > limit) {
			t.few = append(t.few, int32(j))
		}
	}
	return t.few
}

// sortsFaster is how many receivers are faster put in order than all are looked through.
const sortsFaster = 32
