package orchestrator

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// This file has the causes for which the router ends a leg, a request or an answer.

// errStopped ends requests that outlive the drain time.
var errStopped = errors.New("the router has stopped")

// errPhaseTimeout is the cause if a leg's time is over. It distinguishes this from a client that left.
var errPhaseTimeout = errors.New("the phase took too long")

// errAnswerLate is the cause if an answer that is not streamed took longer than allowed. Clients may ask for
// long answers, which show nothing before their end. So probes find out whether the engine works.
var errAnswerLate = fmt.Errorf("the answer is not complete: %w", errPhaseTimeout)

// errRestLate is the cause if the rest of an answer did not begin in time. The queue, the prefill and all
// retries of the rest share this time. So the cause says nothing about the engine that has the leg at the
// end.
var errRestLate = fmt.Errorf("the rest of an answer did not begin: %w", errPhaseTimeout)

// unresponsive is the failure of an engine that stood still (SIGSTOP, a paused machine, a stuck driver) while
// it had a prompt, or while transfer parameters for it were under way.
//
// A leg ends when one of its engines has answered nothing, its metrics included, for two thirds of the lease
// without the margin. When the decode engine continues, it finds the connection closed and aborts.
//
// There are two reasons. Without this limit, a prefill leg would wait as long as prefills may take, which is
// minutes, while other replicas are idle. And a decode engine that continues after the end of the lease reads
// blocks that belong to another request by then. The same happens if the prefill engine has just continued.
// The answer is 200 with wrong text.
//
// Silence is the sign, not age: while both engines live, vLLM's heartbeats keep the lease, for any length of
// the decode engine's queue.
type unresponsive struct {
	at     replica.ID
	phase  phase
	since  time.Duration
	sleep  bool // it is in sleep mode
	source bool // the leg pulls blocks from it
}

func (s *unresponsive) Error() string {
	if s.sleep {
		return string(s.at) + " is in sleep mode"
	}
	if s.source {
		return fmt.Sprintf("the prompt waits for blocks of %s, which last answered %v ago", s.at,
			s.since.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s has not answered anything for %v", s.at, s.since.Round(time.Millisecond))
}

// stuck is the failure of a transfer that does not end although both of its engines are well: the network
// between them drops packets. vLLM 0.32 gives a transfer no time-out, and TCP waits for a quarter of an hour.
// No heartbeat arrives either. So the blocks go to other requests when the lease ends. A later answer would
// be made from foreign blocks.
//
// A waiting decode leg alone does not show a stuck transfer, because the engine may be busy. A canary does:
// it first asks the decode engine for an answer without a transfer, and then for one from transferred blocks.
// So the pair of a waiting leg is tried. The leg ends when this trial gets stuck too.
type stuck struct {
	pair  outlier.Pair
	after time.Duration
}

func (s *stuck) Error() string {
	after := s.after.Round(time.Millisecond)
	return fmt.Sprintf("the blocks of %s did not reach %s within %v", s.pair.Prefill, s.pair.Decode, after)
}
