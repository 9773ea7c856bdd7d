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
	Work  time.Duration // from room until the prompt is computed; 0 unknown
}

// largePart is the share of a replica's blocks that makes a request large. A large request has to wait until
// a replica is nearly idle.
const largePart = 0.5

// Found is what the admission queue has to know about a try that found no room.
func (e *NoRoom) Found() waitline.Found {
	if e.Part > largePart {
		return waitline.Found{Aside: true}
	}
	return waitline.Found{Room: e.Retry, Every: e.Every, Work: e.Work}
}

func (e *NoRoom) Error() string { return "no room: " + e.Reason }

// NoReplica says that no replica of a pool can serve the request now. No replica serves the model, is
// healthy, compatible and not avoided, or is large enough at any time (TooLarge: the client has to send
// less).
type NoReplica struct {
	Pool     string // "prefill", "decode" or "pair"
	Reason   string
	TooLarge bool
	Draining bool // a suitable replica is being drained
}

func (e *NoReplica) Error() string { return fmt.Sprintf("no %s replica: %s", e.Pool, e.Reason) }
