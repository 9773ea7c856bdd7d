package replica

import (
	"sync/atomic"
	"time"
)

// Outbox is the time that a replica needs to send the KV blocks that it has promised to others and not sent
// yet. It adds up the time predicted for each promise. The zero Outbox is empty, and a nil Outbox belongs to
// no replica. Safe for concurrent use.
type Outbox struct{ promised, sent atomic.Int64 }

// Add adds a promise that takes d to send. A negative d removes sending time that is done or cancelled. Add
// returns the place of the new promise: the time for all earlier promises.
func (o *Outbox) Add(d time.Duration) (place time.Duration) {
	switch {
	case o == nil:
		return 0
	case d < 0:
		o.sent.Add(int64(-d))
		return 0
	}
	return time.Duration(o.promised.Add(int64(d))) - d
}

// Ahead returns the time for the promises before a place that are not sent yet. Promises are sent in order.
func (o *Outbox) Ahead(place time.Duration) time.Duration {
	if o == nil {
		return 0
	}
	return max(0, place-time.Duration(o.sent.Load()))
}

// Sending returns the time for everything that is promised and not sent.
func (o *Outbox) Sending() time.Duration {
	sent := o.sent.Load()
	return time.Duration(o.promised.Load() - sent)
}
