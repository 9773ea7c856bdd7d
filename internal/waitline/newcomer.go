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

// Found is what a request learned from a try that found no room. The zero value stands for a request that has
// not tried.
type Found struct {
	Aside bool          // there will be no room while replicas are in use
	Room  time.Duration // until there should be room
	Every time.Duration // between two similar requests that find room; 0 unknown
	Work  time.Duration // from room to its first token; 0 unknown
}

// Newcomer is a request that enters the queue.
type Newcomer[R any] struct {
	Who     R
	Came    time.Duration // since a moment that is the same for the whole queue
	Place   uint64
	Order   Order
	Running bool // a part was admitted before: neither a full nor a closed queue refuses the request
	// What the first try found, and what [Queue.Enter] returned before. Both are zero before the first try.
	Found Found
	Seen  uint64
}

// Errors of a newcomer.
var (
	ErrFull   = errors.New("the admission queue is full")
	ErrClosed = errors.New("the router is shutting down")
)
