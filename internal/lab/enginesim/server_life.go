package enginesim

import (
	"bufio"
	"context"
	"net"
	"time"
)

// begin creates the context that ends with Close.
func (s *serverLife) begin() {
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// acceptAll serves a listener until it is closed.
func (s *Server) acceptAll(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		s.admit(nc)
	}
}

func (s *Server) admit(nc net.Conn) {
	c := &conn{
		srv: s, nc: nc, br: bufio.NewReaderSize(nc, 8<<10), calls: make(chan *call), gone: make(chan struct{}),
	}
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	if s.listening.closed || s.listening.refused || s.listening.dead != nil {
		nc.Close()
		return
	}
	s.listening.conns[c] = true
	s.life.wg.Go(func() {
		c.serve()
		s.listening.mu.Lock()
		delete(s.listening.conns, c)
		s.listening.mu.Unlock()
	})
}

// refuse closes the listening socket. Open connections stay. After d, unless 0, the server listens again.
func (s *Server) refuse(d time.Duration) {
	s.listening.mu.Lock()
	s.listening.refused = true
	if s.o.Listener == nil {
		s.listening.ln.Close()
	}
	s.listening.mu.Unlock()
	if d > 0 {
		s.spawn(func() {
			sleep(s.life.ctx, d)
			_ = s.revive() // an address taken meanwhile goes on refusing
		})
	}
}

// revive listens again at the same address. If the core died, a new one replaces it.
func (s *Server) revive() error {
	s.listening.mu.Lock()
	if s.listening.closed || !s.listening.refused && s.listening.dead == nil {
		s.listening.mu.Unlock()
		return nil
	}
	died := s.listening.dead != nil
	s.listening.dead, s.listening.refused = nil, false
	s.listening.mu.Unlock()
	if died {
		s.cores.peers.forget()
		s.eachRank((*rank).restart)
		s.freezes.compiled.Store(false)
		s.process.begins()
	}
	if err := s.resumeEvents(); err != nil {
		return err
	}
	if s.o.Listener != nil {
		return nil
	}
	ln, err := s.o.Listen("tcp", s.listening.ln.Addr().String())
	if err != nil {
		return err
	}
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	if s.listening.closed {
		return ln.Close()
	}
	s.listening.ln = ln
	s.life.wg.Go(func() { s.acceptAll(ln) })
	return nil
}

// restart ends the process and starts another after d. It returns an error only if d is 0 and the addresses
// cannot be bound.
func (s *Server) restart(d time.Duration) error {
	s.refuse(0)
	s.listening.cutAll()
	s.cores.peers.forget()
	s.eachRank((*rank).restart)
	s.freezes.compiled.Store(false)
	if d == 0 {
		s.process.begins()
		return s.revive()
	}
	s.eachRank((*rank).stopEvents)
	s.later(d, func() {
		s.process.begins()
		_ = s.revive() // an address taken meanwhile goes on refusing
	})
	return nil
}

// begins records the start of a process.
func (s *processStart) begins() { s.born.Store(time.Now().UnixNano()) }

// started is the start of the process, for /metrics and /v1/models.
func (s *processStart) started() time.Time { return time.Unix(0, s.born.Load()) }

func (s *listening) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.nc.Close()
	}
}

// die is the death of EngineCore. The listener closes first, so a client that has seen the 500 is refused
// afterwards.
func (s *Server) die(why error) {
	s.listening.mu.Lock()
	first := s.listening.dead == nil && !s.listening.closed
	if first {
		s.listening.dead = why
		if s.o.Listener == nil {
			s.listening.ln.Close()
		}
	}
	s.listening.mu.Unlock()
	if !first {
		return
	}
	s.eachRank(func(r *rank) {
		r.failAll(engineDead)
		r.side.cut()
		if r.p2p != nil {
			r.p2p.cut()
		}
		r.stopEvents()
	})
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	for c := range s.listening.conns {
		if !c.busy.Load() {
			c.nc.Close()
		}
	}
}

// Dead returns the cause of the engine core's death, nil while it is alive.
func (s *Server) Dead() error {
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	return s.listening.dead
}
