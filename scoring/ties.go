package scoring

import (
	"math"
	"slices"
	"sort"
)

// countTies returns how many pairs of sender i cost no more than limit. Of the usual receivers only those are
// priced of which the two sides do not tell.
func (t *Table) countTies(i int, limit float64) (n int) {
	count := func(Choice) bool { n++; return true }
	if !t.whole(i) {
		t.eachTie(i, t.reachable(i, limit), limit, count)
		return n
	}
	if !t.sorted {
		t.sort()
	}
	t.eachTie(i, t.unusual, limit, count)
	s, rates := &t.Senders[i], t.rates(i)
	own := t.span(s)
	sure := sort.Search(len(t.usual), func(k int) bool { return !(own.most+t.usual[k].most <= limit) })
	maybe := sort.Search(len(t.usual), func(k int) bool { return own.least+t.usual[k].least > limit })
	for k := sure; k < maybe; k++ {
		if j := t.usual[k].at; s.price(&t.Receivers[j], rates[t.Col[j]]) <= limit {
			n++
		}
	}
	return n + sure
}

// sides is what is known of pairs by what each side adds to their cost, whoever the other is. Where the
// blocks to be moved take about the same time for many receivers, nearly nothing else is between the two.
type sides struct {
	usual   []receiverSpan // those receivers, who add least first
	unusual []int32        // the other ones
	own     RateRange      // seconds that the blocks take for the usual ones
	sorted  bool           // the above is of this request
}

// span is between what a side adds to the cost of a pair.
type span struct{ least, most float64 }

type receiverSpan struct {
	span
	at int32 // in Receivers
}

// rounding is more than a price and the sum of two sides are apart for being added up in another order.
const rounding = 1e-9

func newSpan(least, most float64) span {
	return span{least - rounding*(1+math.Abs(least)), most + rounding*(1+math.Abs(most))}
}

// span returns what s adds to the cost of pairs with usual receivers.
func (t *Table) span(s *Sender) span {
	return newSpan(s.cost+linkContention(t.own.Least, s.Leaving),
		s.cost+max(0, s.Outbox-s.Ready)+linkContention(t.own.Most, s.Leaving))
}

// sort makes the spans of all receivers that can be in pairs. Each counts as the most of those before it,
// too, so that whatever stands before one which is surely a tie is one.
func (t *Table) sort() {
	t.usual = t.usual[:0]
	t.unusual = t.unusual[:0]
	t.own = noRates
	t.sorted = true
	typical := t.times(t.order[len(t.order)/2].at)
	for _, c := range t.order {
		r, own := &t.Receivers[c.at], t.times(c.at)
		if own.Least < typical.Least*(1-unlike) || own.Most > typical.Least*(1+unlike) || r.Busy > t.ready {
			t.unusual = append(t.unusual, c.at)
			continue
		}
		t.own.add(own.Least)
		t.own.add(own.Most)
		t.usual = append(t.usual, receiverSpan{newSpan(
			r.cost+r.Inbound+own.Least+linkContention(own.Least, r.Arriving),
			r.cost+r.Inbound+own.Most+linkContention(own.Most, r.Arriving),
		), c.at})
	}
	slices.SortFunc(t.usual, func(a, b receiverSpan) int {
		if a.least < b.least {
			return -1
		}
		return 1
	})
	for k := 1; k < len(t.usual); k++ {
		t.usual[k].most = max(t.usual[k].most, t.usual[k-1].most)
	}
}

// unlike is the part by which blocks take longer or shorter than is usual where a receiver is not a usual
// one.
const unlike = 0.01

// times returns the seconds that the blocks take for a receiver, over any of its links.
func (t *Table) times(j int32) RateRange {
	bytes, rates := t.Receivers[j].Bytes, t.Columns[t.Col[j]]
	return RateRange{bytes * rates.Least, bytes * rates.Most}
}
