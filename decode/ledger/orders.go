package ledger

import "github.com/tandem-router/tandem/decode/order"

// orders is the leases of one account that wait for something. Each list has its own order, so that no
// question needs a look at all leases. Only [orders.count] writes them.
type orders struct {
	reserved   order.List // reserved leases by the time of admission; the weight is the blocks
	coming     Arrivals
	held       alike // reported leases
	unanswered alike // leases that the engine has and has not answered
}

// count adds l to the lists of its states (sign 1), or removes l from these lists (sign -1).
func (o *orders) count(l *Lease, sign int) {
	if l.state == Reserved {
		o.reserved.Change(order.Entry{Key: l.admitAt, ID: l.id, Weight: int64(l.Whole())}, sign)
	}
	if l.state == Reported {
		o.held.change(l, sign)
	}
	if l.unanswered() {
		o.unanswered.change(l, sign)
	}
	o.coming.count(l, sign)
}
