package scoring

import "sort"

// countTies returns how many pairs of sender i cost no more than limit. It prices only the pairs that the
// bounds leave open.
func (t *Table) countTies(i int, limit float64) (n int) {
	for k := range t.groups {
		g := &t.groups[k]
		if len(g.receivers) == 0 || g.senders[i]+g.receivers[0].floor > limit {
			continue
		}
		sure := g.sure(&t.Senders[i], limit)
		n += t.possible(i, g.receivers[:sure])
		n += t.priced(i, g.receivers[sure:], g.senders[i], limit)
	}
	return n
}

// sure returns how many of the first receivers certainly cost no more than limit with s.
func (g *group) sure(s *Sender, limit float64) int {
	most := g.senderMost(s)
	return sort.Search(len(g.most), func(k int) bool { return !(most+g.most[k] <= limit) })
}

// possible returns how many pairs of sender i with some receivers are possible.
func (t *Table) possible(i int, with []candidate) (n int) {
	if len(with) == 0 || t.whole(i) {
		return len(with)
	}
	rates := t.rates(i)
	for _, r := range with {
		if rates[t.Col[r.at]] >= 0 && !t.pairOut(t.place(i, int(r.at))) {
			n++
		}
	}
	return n
}

// priced returns how many pairs of sender i with some receivers of one group cost no more than limit, by
// their prices. least is the least that sender i adds.
func (t *Table) priced(i int, with []candidate, least, limit float64) (n int) {
	s, rates := &t.Senders[i], t.rates(i)
	for _, r := range with {
		if least+r.floor > limit {
			break // and so are all that follow
		}
		perByte := rates[t.Col[r.at]]
		if perByte >= 0 && s.price(&t.Receivers[r.at], perByte) <= limit &&
			!t.pairOut(t.place(i, int(r.at))) {
			n++
		}
	}
	return n
}
