package scoring

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
