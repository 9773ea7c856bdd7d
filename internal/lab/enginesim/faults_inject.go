package enginesim

import (
	"cmp"
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/kvevents"
)

// later calls f after d, unless the server is closed before.
func (s *Server) later(d time.Duration, f func()) {
	s.spawn(func() {
		sleep(s.life.ctx, d)
		if s.life.ctx.Err() == nil {
			f()
		}
	})
}

// Fault injects f; see [Fault] for the kinds. Most kinds take effect before Fault returns.
func (s *Server) Fault(f Fault) error {
	switch f.Kind {
	case "fail", "stall", "stray", "cut_stream", "stall_stream", "fail_stream", "null_params", "miscount":
		s.faults.add(f)
	case "cut_path", "hold_path", "wrong_load":
		s.cores.peers.paths.add(f)
	case "no_load":
		s.eachRank(func(r *rank) { r.setNoLoad(true) })
	case "mend_path":
		s.mendPath(f.From)
	case "freeze":
		s.freeze(&s.freezes.server, f.For)
	case "freeze_core":
		s.freeze(&s.freezes.engine, f.For)
	case "slow_metrics":
		s.faults.scrape.Store(int64(f.For))
	case "slow":
		s.slow(cmp.Or(f.Factor, 1))
	case "refuse":
		s.refuse(f.For)
	case "accept":
		return s.revive()
	case "die":
		s.die(errors.New("killed by a fault"))
	case "restart":
		return s.restart(f.For)
	case "lease":
		s.eachRank(func(r *rank) { r.setLease(f.For) })
	case "swap_adapter":
		s.swapAdapter(f.Body, f.Path)
	case "no_orca":
		s.faults.orca.Store(true)
	case "clear":
		s.clearFaults()
	default:
		return s.eventFault(f)
	}
	return nil
}

// clearFaults ends all faults that can end.
func (s *Server) clearFaults() {
	s.faults.clear()
	s.mendPath("")
	s.freezes.server.end()
	s.freezes.engine.end()
	s.slow(1)
	s.eachPublisher((*kvevents.Publisher).Resume)
}

func (s *Server) eachRank(do func(*rank)) {
	for _, r := range s.cores.ranks {
		do(r)
	}
}

func (s *Server) slow(factor float64) {
	s.eachRank(func(r *rank) {
		c := s.o.Core.Cost
		c.Speed = cmp.Or(c.Speed, 1) / factor
		r.mu.Lock()
		r.core.SetCost(c)
		r.mu.Unlock()
	})
}

func (r *rank) setLease(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.SetLease(d)
}
