package enginesim

import (
	"sync"
	"sync/atomic"
	"time"
)

// standstill is a part of a server that can be frozen. Safe for concurrent use.
type standstill struct {
	on atomic.Bool // frozen; if false, the hot path takes no lock

	mu   sync.Mutex    // guards the following
	over chan struct{} // closed at the end of the freeze; nil: not frozen
}

// begin freezes the part. It returns false if the part was frozen already.
func (s *standstill) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return false
	}
	s.over = make(chan struct{})
	s.on.Store(true)
	return true
}

func (s *standstill) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		close(s.over)
		s.over = nil
		s.on.Store(false)
	}
}

// wait waits while the part is frozen, at most until stop or end is closed.
func (s *standstill) wait(stop, end <-chan struct{}) {
	if !s.on.Load() {
		return
	}
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-stop:
	case <-end:
	}
}

// waitFrozen waits while the server is frozen, at most until stop is closed.
func (s *Server) waitFrozen(stop <-chan struct{}) { s.freezes.server.wait(stop, s.life.ctx.Done()) }

// waitEngineFrozen waits while the engine is frozen, alone or with its server.
func (s *Server) waitEngineFrozen(stop <-chan struct{}) {
	s.waitFrozen(stop)
	s.freezes.engine.wait(stop, s.life.ctx.Done())
}

func (s *Server) freeze(part *standstill, d time.Duration) {
	if part.begin() {
		s.later(d, part.end)
	}
}

// compile freezes the engine before the first request with log-probabilities, as if a kernel had to be
// compiled.
func (s *Server) compile() {
	if s.o.CompilesLogprobs > 0 && s.freezes.compiled.CompareAndSwap(false, true) {
		s.freeze(&s.freezes.engine, s.o.CompilesLogprobs)
	}
}
