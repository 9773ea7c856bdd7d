package replica

import (
	"sync/atomic"
	"time"
)

// Outbox is the time that a replica needs to send the KV blocks which it has promised to others that have not
// got them yet, as it was predicted for each. The zero Outbox is empty, and a nil one nobody's. Safe for
// concurrent use.
type Outbox struct{ promised, sent atomic.Int64 }

// Add takes in that more is to be sent, or, below zero, that so much has been sent or will not be. It returns
// the place of what is to be sent: all that was promised before.
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

// Ahead returns the time for what was promised before a place and has not been sent, in the order of
// promises.
func (o *Outbox) Ahead(place time.Duration) time.Duration {
	if o == nil {
		return 0
	}
	return max(0, place-time.Duration(o.sent.Load()))
}

// Sending returns the time for all of it.
func (o *Outbox) Sending() time.Duration {
	sent := o.sent.Load()
	return time.Duration(o.promised.Load() - sent)
}
