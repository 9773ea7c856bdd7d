package scoring

// OtherSender returns the cheapest pair of c's receiver with another sender than c's, the first in the table
// of those that cost the same; its cost is infinite where there is none. It is to be asked after
// [Table.Choose], by whose bounds hardly any pair has to be looked at: one column of all rates lies in as
// many places of memory as there are senders.
func (t *Table) OtherSender(c Choice) Choice {
	best := none
	for i := range t.Senders {
		if t.senderLeast(i)+t.floors[c.Decode] >= best.Cost || i == int(c.Prefill) {
			continue
		}
		if cost, ok := t.Cost(i, int(c.Decode)); ok && cost < best.Cost {
			best = Choice{int32(i), c.Decode, cost}
		}
	}
	return best
}

// OtherReceiver is OtherSender for c's sender with another receiver than c's.
func (t *Table) OtherReceiver(c Choice) Choice {
	best, own := none, t.senderLeast(int(c.Prefill))
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
