package scoring

import (
	"math"
	"slices"
)

// bounds is what each side of a pair adds to its cost at least, and at most. Most pairs are never priced: by
// the bounds they are not among the best, and tie with the best or do not.
type bounds struct {
	floors []float64   // of each receiver; +Inf where it can be in no pair, or is excluded
	order  []candidate // those receivers that can, the lowest floor first
	groups [2]group    // the same, apart
	ready  float64     // seconds until the first sender is ready
}

// candidate is a receiver with its floor: what its pairs cost at least beyond what the sender adds.
type candidate struct {
	floor float64
	at    int32 // in Receivers
}

// group is receivers for which the blocks to be moved take about the same time, so that nearly nothing else
// is between the two sides of their pairs; or those that are like nobody else.
type group struct {
	receivers []candidate // the lowest floor first
	most      []float64   // that each of them, or any before it, adds at most
	own       RateRange   // seconds that the blocks take
	senders   []float64   // what each sender adds at least; +Inf for no receivers
}

// bound works out the bounds. A receiver's floor is its price over the fastest of its links with a sender
// that costs nothing itself, and is as good as any in everything else. The same sum of numbers that are not
// more is not more, rounding included, so that with what a sender costs itself it is never more than their
// price.
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

// divide makes the groups. The usual time is that of the receiver in the middle.
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

// unlike is the part by which blocks take longer or shorter than is usual where a receiver is like nobody
// else.
const unlike = 0.01

// times returns the seconds that the blocks take for a receiver, over any of its links.
func (t *Table) times(j int32) RateRange {
	bytes, rates := t.Receivers[j].Bytes, t.Columns[t.Col[j]]
	return RateRange{bytes * rates.Least, bytes * rates.Most}
}

func (g *group) reset() {
	g.receivers, g.most = g.receivers[:0], g.most[:0]
	g.senders, g.own = g.senders[:0], noRates
}

// add adds a receiver, whose floor is not below that of the last one.
func (g *group) add(c candidate, own RateRange, most float64) {
	g.own.add(own.Least)
	g.own.add(own.Most)
	most = atMost(most)
	if n := len(g.most); n > 0 {
		most = max(most, g.most[n-1])
	}
	g.receivers, g.most = append(g.receivers, c), append(g.most, most)
}

// boundSenders works out what each sender adds at least: what it costs itself, and what its transfers keep
// waiting beyond those of the ideal one. The second is added up in another order than in a price, and counts
// less for what the two may be apart.
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

// senderMost returns what s adds at most to the cost of pairs in g.
func (g *group) senderMost(s *Sender) float64 {
	return atMost(s.cost + max(0, s.Outbox-s.Ready) + linkContention(g.own.Most, s.Leaving, s.crowding()))
}

// atMost returns more than what one side adds to a price, which is added up in another order.
func atMost(side float64) float64 { return side + rounding*(1+math.Abs(side)) }

// rounding is more than the part by which two sums of the same numbers are apart.
const rounding = 1e-12

// senderLeast returns what sender i adds at least, whoever receives.
func (t *Table) senderLeast(i int) float64 {
	return min(t.groups[0].senders[i], t.groups[1].senders[i])
}
