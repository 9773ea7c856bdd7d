package planner

import (
	"fmt"
	"time"
)

// NoRoom says that replicas exist which can serve the request later, but none has room for it now. The request belongs in the admission queue.
type NoRoom struct {
	Reason string
	Retry  time.Duration // when room is expected, a hint; at least 10 ms
}

func (e *NoRoom) Error() string { return "no room: " + e.Reason }

// NoReplica says that a pool has no usable replica for the request at all: none serves the model, is healthy, compatible and not avoided.
type NoReplica struct {
	Pool   string // "prefill", "decode" or "pair"
	Reason string
}

func (e *NoReplica) Error() string { return fmt.Sprintf("no %s replica: %s", e.Pool, e.Reason) }

// TooLarge says that the prompt fits no replica of a pool, however long it waited. The client has to send less.
type TooLarge struct {
	Pool   string // "prefill" or "decode"
	Tokens int    // of the prompt
	Limit  int    // the largest prompt that any usable replica of the pool takes
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the prompt of %d tokens is more than any %s replica can hold (%d)", e.Tokens, e.Pool, e.Limit)
}
