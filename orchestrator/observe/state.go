package observe

import (
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
)

// State is the sources from which the router's state is read on demand. Every field must be set. Its methods
// are safe for concurrent use.
type State struct {
	Prefill *prefill.Pool
	Decode  *decode.Pool
	Planner *planner.Planner
	Fleet   *fleet.Fleet

	Traffic   func() Traffic
	Draining  func() bool // the router shuts down
	SplitOnly func() bool // local: never
}

// Traffic says how many requests there are now.
type Traffic struct {
	InFlight    int
	Waiting     int           // for decode room
	Backlog     time.Duration // until all waiting requests should have found room
	Retrying    int64         // requests with a place in the retry budget
	RetryBudget int64         // places
}

// Ready reports whether requests can be served: both pools have a usable replica, or the decode pool has one
// that may prefill itself.
func (s *State) Ready() (ok bool, why []string) {
	up, drained := map[replica.Role]int{}, map[replica.Role]string{}
	for _, w := range s.Fleet.Watchers() {
		switch {
		case w.InUse():
			up[w.Role()]++
		case w.Up() && w.Draining():
			drained[w.Role()] = ": those that are up are being drained"
		}
	}
	if s.Draining() {
		why = append(why, "shutting down")
	}
	if up[replica.Decode] == 0 {
		why = append(why, "no decode replica is usable"+drained[replica.Decode])
	}
	if up[replica.Prefill] == 0 && s.SplitOnly() {
		why = append(why, "no prefill replica is usable and local is never"+drained[replica.Prefill])
	}
	return len(why) == 0, why
}

// Leases returns how many reservations have not ended; 0 if no request runs. Safe for concurrent use.
func (s *State) Leases() int {
	now, n := time.Now(), 0
	for _, m := range s.Prefill.Status(now) {
		n += m.Requests
	}
	for _, m := range s.Decode.Status(now) {
		n += m.Leases
	}
	return n
}

// Millis returns a duration in milliseconds, rounded down to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
