package planner

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/waitline"
)

// NoRoom says that replicas exist which can serve the request later, but none has room for it now. The
// request belongs in the admission queue.
type NoRoom struct {
	Reason string
	Retry  time.Duration // when room is expected, a hint; at least 10 ms
	Part   float64       // of the blocks of a replica, the least that the request would take on one; 0 unknown
	// Between two requests like it that find room, on all of its replicas together; 0 unknown.
	Every time.Duration
}

// largePart is the part of a replica's blocks from which a request is large: it would have to wait until a
// replica has nearly nothing else to do.
const largePart = 0.5

// Found is what the admission queue has to know of a try that found no room.
func (e *NoRoom) Found() waitline.Found {
	if e.Part > largePart {
		return waitline.Found{Aside: true}
	}
	return waitline.Found{Room: e.Retry, Every: e.Every}
}

// RoomTries is how many of those who wait for room are planned for again when room may have come. With one,
// who fits next to nowhere keeps everybody out; all would make as many plans, and find no more
// (docs/decisions/0047).
const RoomTries = 3

func (e *NoRoom) Error() string { return "no room: " + e.Reason }

// NoReplica says that a pool has no usable replica for the request at all: none serves the model, is healthy,
// compatible and not avoided, or large enough however long the request waited (TooLarge: the client has to
// send less).
type NoReplica struct {
	Pool     string // "prefill", "decode" or "pair"
	Reason   string
	TooLarge bool
	Draining bool // a replica that would do is being drained
}

func (e *NoReplica) Error() string { return fmt.Sprintf("no %s replica: %s", e.Pool, e.Reason) }
