package enginesim

import (
	"sync"
	"sync/atomic"
	"time"
)

// ice is what stands still for a while. Safe for concurrent use.
type ice struct {
	on atomic.Bool // the hot path looks no further

	mu   sync.Mutex    // guards the following
	over chan struct{} // closed when it melts; nil: there is none
}

// form makes ice, and reports whether there was none.
func (i *ice) form() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over != nil {
		return false
	}
	i.over = make(chan struct{})
	i.on.Store(true)
	return true
}

func (i *ice) melt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over != nil {
		close(i.over)
		i.over = nil
		i.on.Store(false)
	}
}

// wait returns when there is none, or at stop or end.
func (i *ice) wait(stop, end <-chan struct{}) {
	if !i.on.Load() {
		return
	}
	i.mu.Lock()
	over := i.over
	i.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-stop:
	case <-end:
	}
}

// thaw waits while the server is frozen, or until stop.
func (s *Server) thaw(stop <-chan struct{}) { s.ices.frozen.wait(stop, s.life.ctx.Done()) }

// thawCore waits while the engine is frozen, alone or with its server.
func (s *Server) thawCore(stop <-chan struct{}) {
	s.thaw(stop)
	s.ices.stiff.wait(stop, s.life.ctx.Done())
}

func (s *Server) freeze(i *ice, d time.Duration) {
	if i.form() {
		s.later(d, i.melt)
	}
}
