package waitline

import (
	"errors"
	"time"
)

// arrival is the part of a waiting request that never changes.
type arrival struct {
	came   time.Duration
	number uint64 // of the requests that joined
	order  Order
	stays  bool // the request was admitted before: no newcomer displaces it
}

// Found is the result of a try that found no room. The zero value is for a request that has not tried.
type Found struct {
	Aside bool          // no room while replicas are in use
	Room  time.Duration // until there should be room
	Every time.Duration // time between two similar requests that find room; 0: unknown
	Work  time.Duration // time from finding room to the first token; 0: unknown
}

// Newcomer is a new request that enters the queue.
type Newcomer[R any] struct {
	Who     R
	Came    time.Duration // time since a fixed moment, the same for the whole queue
	Place   uint64
	Order   Order
	Running bool // a part was admitted before: neither a full nor a closed queue refuses the request
	// The result of the first try, and the number that [Queue.Enter] returned before it. Both are zero before
	// the first try.
	Found Found
	Seen  uint64
}

// Errors of a newcomer.
var (
	ErrFull   = errors.New("the admission queue is full")
	ErrClosed = errors.New("the router is shutting down")
)
