package scoring

import (
	"math"
	"slices"
)

// bounds are the least and the most that each side of a pair adds to the pair's cost. They keep most pairs
// from being priced: the bounds already tell whether a pair can be among the best, or tie with the best.
type bounds struct {
	floors []float64   // of each receiver; +Inf if it has no pair, or is excluded
	order  []candidate // the receivers with a pair, the lowest floor first
	groups [2]group    // the same receivers, in two groups
	ready  float64     // seconds until the first sender is ready
}

// candidate is a receiver with its floor: the least cost of its pairs beyond what the sender adds.
type candidate struct {
	floor float64
	at    int32 // in Receivers
}

// group is a set of receivers. In the first group the transfers take about the same time, so that the cost
// of a pair is nearly a sum of its two sides. The second group has all other receivers.
type group struct {
	receivers []candidate // the lowest floor first
	most      []float64   // the most that each receiver, or any before it, adds
	own       RateRange   // seconds of the transfers
	senders   []float64   // the least that each sender adds; +Inf without receivers
}

// bound computes the bounds. A receiver's floor is its price over its fastest link, with an ideal sender:
// one that costs nothing itself and is as good as any sender in everything else. The floor plus a sender's
// own cost is never above the price of their pair, rounding included, because both sum the same numbers in
// the same order, each no larger in the floor.
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
	slices.SortFunc(t.order, func(a, b candidate) int {
		switch {
		case a.floor < b.floor:
			return -1
		case a.floor > b.floor:
			return 1
		}
		return int(a.at - b.at)
	})
	t.divide()
	for k := range t.groups {
		t.groups[k].boundSenders(t.Senders, &ideal)
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

// divide makes the groups. The usual time is the time of the median receiver.
func (t *Table) divide() {
	for k := range t.groups {
		t.groups[k].reset()
	}
	usual := 0.0
	if len(t.order) > 0 {
		usual = t.times(t.order[len(t.order)/2].at).Least
	}
	for _, c := range t.order {
		r, own := &t.Receivers[c.at], t.times(c.at)
		k := 0
		if own.Least < usual*(1-unlike) || own.Most > usual*(1+unlike) || r.Busy > t.ready {
			k = 1
		}
		blocked := prefillBlocking(r.Busy, t.ready)
		t.groups[k].add(c, own,
			r.cost+r.Inbound+own.Most+blocked+linkContention(own.Most, r.Arriving, r.crowding()))
	}
}

// unlike is the relative difference from the usual time that puts a receiver into the second group.
const unlike = 0.01

// times returns the seconds that the blocks of a receiver take, over any of its links.
func (t *Table) times(j int32) RateRange {
	bytes, rates := t.Receivers[j].Bytes, t.Columns[t.Col[j]]
	return RateRange{bytes * rates.Least, bytes * rates.Most}
}

func (g *group) reset() {
	g.receivers, g.most = g.receivers[:0], g.most[:0]
	g.senders, g.own = g.senders[:0], noRates
}

// add adds a receiver, whose floor is not below the last one's.
func (g *group) add(c candidate, own RateRange, most float64) {
	g.own.add(own.Least)
	g.own.add(own.Most)
	most = atMost(most)
	if n := len(g.most); n > 0 {
		most = max(most, g.most[n-1])
	}
	g.receivers, g.most = append(g.receivers, c), append(g.most, most)
}

// boundSenders computes the least that each sender adds: its own cost, and how much longer its transfers
// make others wait than the ideal sender's. The second part is summed in another order than a price, so it
// is reduced by the possible rounding difference.
func (g *group) boundSenders(senders []Sender, ideal *Sender) {
	n := len(g.receivers)
	if n == 0 {
		for range senders {
			g.senders = append(g.senders, math.Inf(1))
		}
		return
	}
	floors := max(math.Abs(g.receivers[0].floor), math.Abs(g.receivers[n-1].floor))
	crowding := ideal.crowding()
	for i := range senders {
		s := &senders[i]
		least := s.cost
		more := linkContention(g.own.Least, s.Leaving-ideal.Leaving, s.crowding()-crowding)
		if apart := rounding * (1 + floors + math.Abs(least) + more); more > apart {
			least += more - apart
		}
		g.senders = append(g.senders, least)
	}
}

// senderMost returns the most that s adds to the cost of pairs in g.
func (g *group) senderMost(s *Sender) float64 {
	return atMost(s.cost + max(0, s.Outbox-s.Ready) + linkContention(g.own.Most, s.Leaving, s.crowding()))
}

// atMost returns a bound above one side's share of a price, which is summed in another order.
func atMost(side float64) float64 { return side + rounding*(1+math.Abs(side)) }

// rounding is above the relative difference of two sums of the same numbers.
const rounding = 1e-12

// senderLeast returns the least that sender i adds, with any receiver.
func (t *Table) senderLeast(i int) float64 {
	return min(t.groups[0].senders[i], t.groups[1].senders[i])
}
