package orchestrator

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// This file has the causes for which the router itself ends a leg, a request or an answer.

// errStopped ends requests that outlive the drain time.
var errStopped = errors.New("the router has stopped")

// errPhaseTimeout is the cause of a leg's context that ran out of time, in contrast to a client that left.
var errPhaseTimeout = errors.New("the phase took too long")

// errAnswerLate is the cause if an answer that is not streamed took longer than allowed. Clients ask for
// long answers, and nothing shows before their end: probes find out whether the engine works.
var errAnswerLate = fmt.Errorf("the answer is not complete: %w", errPhaseTimeout)

// errRestLate is the cause where the rest of an answer did not begin in time. The queue, the prefill and all
// retries of the rest had that time together: it says nothing about the engine that has the leg in the end.
var errRestLate = fmt.Errorf("the rest of an answer did not begin: %w", errPhaseTimeout)

// unresponsive is an engine that stood still (SIGSTOP, a paused machine, a stuck driver) with a prompt in
// it, or while transfer parameters that it needs were under way.
//
// A leg is given up when one of its engines has answered nothing, its metrics included, for two thirds of
// what the lease has beyond the margin. The decode engine finds the connection closed when it goes on, and
// aborts.
//
// There are two reasons. A prefill leg would wait as long as prefills may take, which is minutes, while
// others are idle. And a decode engine that goes on after the end of the lease pulls blocks that belong to
// another request by then. The same happens if the prefill engine has just gone on. The answer is 200 with
// wrong text.
//
// Silence is what tells, and not age: while both engines live, vLLM's heartbeats keep the lease, however
// long the decode engine's queue is.
type unresponsive struct {
	at    replica.ID
	phase phase
	since time.Duration
	sleep bool // it is in sleep mode
}

func (s *unresponsive) Error() string {
	if s.sleep {
		return string(s.at) + " is in sleep mode"
	}
	return fmt.Sprintf("%s has not answered anything for %v", s.at, s.since.Round(time.Millisecond))
}

// stuck is a transfer that does not end although both of its engines are well: the network between them
// drops packets. vLLM 0.32 gives a transfer no time-out, and TCP waits for a quarter of an hour. No
// heartbeat arrives either. So the blocks go to other requests when the lease is over. A later answer would
// be made from foreign blocks.
//
// That a decode leg waits does not tell a stuck transfer from a busy engine. A canary does: it asks the
// decode engine for an answer of its own first, and then for one from blocks. So a leg that waits has its
// pair tried, and is given up when that trial gets stuck, too.
type stuck struct {
	pair  outlier.Pair
	after time.Duration
}

func (s *stuck) Error() string {
	after := s.after.Round(time.Millisecond)
	return fmt.Sprintf("the blocks of %s did not reach %s within %v", s.pair.Prefill, s.pair.Decode, after)
}
