package enginesim

import (
	"sync"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// target is where a request's outputs go.
type target struct {
	sink *sink
	seq  int // which sequence of the HTTP request
}

// sink gathers the outputs of one HTTP request until its handler takes them.
type sink struct {
	ready chan struct{} // capacity 1: something is there

	mu   sync.Mutex // guards the following
	got  []delivery
	fail *problem // the core died or was restarted
}

// delivery is one output on its way to a handler.
type delivery struct {
	seq    int
	out    core.Output
	params []byte // kv_transfer_params as JSON, nil for none
}

func newSink() *sink { return &sink{ready: make(chan struct{}, 1)} }

func (s *sink) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take swaps the gathered outputs for an empty list.
func (s *sink) take(empty []delivery) ([]delivery, *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = empty[:0]
	return got, s.fail
}
