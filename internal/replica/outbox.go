package replica

import "sync/atomic"

// Outbox counts the tokens whose KV blocks a replica has promised to others that have not got them yet. The zero Outbox is empty, and a nil one nobody's. Safe
// for concurrent use.
type Outbox struct{ tokens atomic.Int64 }

// Add takes in more tokens, or, below zero, that so many have been sent or will not be.
func (o *Outbox) Add(tokens int) {
	if o != nil {
		o.tokens.Add(int64(tokens))
	}
}

// Tokens returns how many there are.
func (o *Outbox) Tokens() int { return int(o.tokens.Load()) }
