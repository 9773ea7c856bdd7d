package replica

import (
	"sync/atomic"
	"time"
)

// Outbox is the time that a replica needs to send the KV blocks which it has promised to others that have not got them yet, as it was predicted for each. The zero
// Outbox is empty, and a nil one nobody's. Safe for concurrent use.
type Outbox struct{ sending atomic.Int64 }

// Add takes in that more is to be sent, or, below zero, that so much has been sent or will not be.
func (o *Outbox) Add(d time.Duration) {
	if o != nil {
		o.sending.Add(int64(d))
	}
}

// Sending returns the time for all of it.
func (o *Outbox) Sending() time.Duration { return time.Duration(o.sending.Load()) }
