package enginesim

import (
	"sync"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// target is the destination of a request's outputs.
type target struct {
	sink *sink
	seq  int // index of the sequence in the HTTP request
}

// sink collects the outputs of one HTTP request until its handler takes them.
type sink struct {
	ready chan struct{} // capacity 1: outputs or a failure are there

	mu   sync.Mutex // guards the following
	got  []delivery
	fail *problem // the core died or was restarted
}

// delivery is one output for a handler.
type delivery struct {
	seq    int
	out    core.Output
	params []byte // kv_transfer_params as JSON; nil: none
}

func newSink() *sink { return &sink{ready: make(chan struct{}, 1)} }

func (s *sink) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take swaps the collected outputs for an empty list.
func (s *sink) take(empty []delivery) ([]delivery, *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = empty[:0]
	return got, s.fail
}
