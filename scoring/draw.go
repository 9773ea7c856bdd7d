package scoring

import "math/rand/v2"

// draw takes one of the plans that are as good as least, each with the same chance. The exact minimum would
// send every request the same way until the next report. In an idle fleet nearly every pair is as good as
// the best. So draw counts the pairs, mostly without pricing them (see ties.go), draws one number, and walks
// only the row that it falls into.
func (t *Table) draw(rnd *rand.Rand, least Choice) (chosen Choice, ties int) {
	limit := t.Limit(least.Cost)
	splits := t.countSplits(limit)
	if ties = splits; !t.SplitFirst || splits == 0 || least.Prefill < 0 {
		ties += t.countLocals(limit)
	}
	at := 0
	if ties > 1 {
		at = rnd.IntN(ties)
	}
	if at < splits {
		return t.tiedSplit(at, limit), ties
	}
	return t.tiedLocal(at-splits, limit), ties
}

// countSplits returns how many pairs cost no more than limit. It leaves the number of each sender's pairs in
// t.tied.
func (t *Table) countSplits(limit float64) (n int) {
	t.tied = t.tied[:0]
	for i, out := range t.senderOut {
		row := 0
		if !out {
			row = t.countTies(i, limit)
		}
		t.tied = append(t.tied, int32(row))
		n += row
	}
	return n
}

// tiedSplit returns the pair within limit that has so many others within limit before it in the table.
func (t *Table) tiedSplit(before int, limit float64) (found Choice) {
	i := 0
	for ; before >= int(t.tied[i]); i++ {
		before -= int(t.tied[i])
	}
	s, rates := &t.Senders[i], t.rates(i)
	least := t.senderLeast(i)
	for j, floor := range t.floors {
		perByte := rates[t.Col[j]]
		if least+floor > limit || perByte < 0 {
			continue
		}
		cost := s.price(&t.Receivers[j], perByte)
		if cost > limit || t.pairOut(t.place(i, j)) {
			continue
		}
		found = Choice{int32(i), int32(j), cost}
		if before--; before < 0 {
			break
		}
	}
	return found
}

func (t *Table) countLocals(limit float64) (n int) {
	for j := range t.Local {
		if cost, ok := t.Alone(j); ok && cost <= limit {
			n++
		}
	}
	return n
}

// tiedLocal is tiedSplit for Local plans.
func (t *Table) tiedLocal(before int, limit float64) (found Choice) {
	for j := range t.Local {
		if cost, ok := t.Alone(j); ok && cost <= limit {
			found = Choice{-1, int32(j), cost}
			if before--; before < 0 {
				break
			}
		}
	}
	return found
}
