package scoring

import "math/rand/v2"

// drawnAlone is how many ties are drawn for one by one. In a large fleet that is idle nearly every pair is as
// good as the best. Each has the same chance, and each is counted; but behind so many others a whole row is
// drawn for at once, and how many of its pairs tie is mostly known without pricing them, see ties.go.
const drawnAlone = 1024

// lots is a choice by chance among ties that come one after the other, of which each has the same chance.
type lots struct {
	rnd    *rand.Rand
	limit  float64 // what a tie may cost
	chosen Choice
	ties   int
}

// take lets one more tie take part.
func (l *lots) take(c Choice) {
	if l.ties++; l.ties == 1 || l.rnd.IntN(l.ties) == 0 {
		l.chosen = c
	}
}

// takes lets n more ties take part, and returns which of them is chosen now, -1 where none is.
func (l *lots) takes(n int) int {
	if n == 0 {
		return -1
	}
	l.ties += n
	if at := l.rnd.IntN(l.ties); at < n {
		return at
	}
	return -1
}

// draw takes one of the plans that are as good as least: the minimum of exact numbers would send everyone the
// same way until the next report. It goes through them in the order of the table.
func (t *Table) draw(rnd *rand.Rand, least Choice) (chosen Choice, ties int) {
	l := lots{rnd: rnd, limit: t.Limit(least.Cost)}
	t.drawSplits(&l)
	if t.SplitFirst && l.ties > 0 && least.Prefill >= 0 {
		return l.chosen, l.ties
	}
	for j := range t.Local {
		if cost, ok := t.Alone(j); ok && cost <= l.limit {
			l.take(Choice{-1, int32(j), cost})
		}
	}
	return l.chosen, l.ties
}

func (t *Table) drawSplits(l *lots) {
	t.sorted = false
	for i, out := range t.senderOut {
		switch {
		case out:
		case l.ties < drawnAlone:
			t.eachTie(i, t.reachable(i, l.limit), l.limit, func(c Choice) bool { l.take(c); return true })
		default:
			if at := l.takes(t.countTies(i, l.limit)); at >= 0 {
				l.chosen = t.tie(i, at, l.limit)
			}
		}
	}
}

// eachTie walks the pairs of sender i with some receivers that cost no more than limit.
func (t *Table) eachTie(i int, with []int32, limit float64, yield func(Choice) bool) {
	s, rates := &t.Senders[i], t.rates(i)
	for _, j := range with {
		perByte := rates[t.Col[j]]
		if perByte < 0 {
			continue
		}
		cost := s.price(&t.Receivers[j], perByte)
		if cost <= limit && !t.pairOut(t.place(i, int(j))) && !yield(Choice{int32(i), j, cost}) {
			return
		}
	}
}

// tie returns the pair of sender i before which so many of its pairs tie.
func (t *Table) tie(i, before int, limit float64) (found Choice) {
	t.eachTie(i, t.reachable(i, limit), limit, func(c Choice) bool {
		found = c
		before--
		return before >= 0
	})
	return found
}
