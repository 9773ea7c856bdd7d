package enginesim

import (
	"bufio"
	"net"
	"time"
)

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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.refused || s.dead != nil {
		nc.Close()
		return
	}
	s.conns[c] = true
	s.wg.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// refuse closes the listening socket, and every idle and busy connection stays; after d, unless 0, it listens
// again.
func (s *Server) refuse(d time.Duration) {
	s.mu.Lock()
	s.refused = true
	if s.o.Listener == nil {
		s.ln.Close()
	}
	s.mu.Unlock()
	if d > 0 {
		s.spawn(func() {
			sleep(s.ctx, d)
			_ = s.revive() // an address taken meanwhile goes on refusing
		})
	}
}

// revive listens again at the same address, with a new core if the old one died.
func (s *Server) revive() error {
	s.mu.Lock()
	if s.closed || !s.refused && s.dead == nil {
		s.mu.Unlock()
		return nil
	}
	died := s.dead != nil
	s.dead, s.refused = nil, false
	s.mu.Unlock()
	if died {
		s.eachRank((*rank).restart)
		s.begins()
	}
	if err := s.resumeEvents(); err != nil {
		return err
	}
	if s.o.Listener != nil {
		return nil
	}
	ln, err := s.o.Listen("tcp", s.ln.Addr().String())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ln.Close()
	}
	s.ln = ln
	s.wg.Go(func() { s.acceptAll(ln) })
	return nil
}

// restart is the end of the process and the start of another after d. It fails only when d is 0 and the
// addresses cannot be bound.
func (s *Server) restart(d time.Duration) error {
	s.refuse(0)
	s.cutAll()
	s.eachRank((*rank).restart)
	if d == 0 {
		s.begins()
		return s.revive()
	}
	s.eachRank((*rank).stopEvents)
	s.later(d, func() {
		s.begins()
		_ = s.revive() // an address taken meanwhile goes on refusing
	})
	return nil
}

// begins notes that a process starts now.
func (s *Server) begins() { s.born.Store(time.Now().UnixNano()) }

// started is when the process started, as /metrics and /v1/models tell it.
func (s *Server) started() time.Time { return time.Unix(0, s.born.Load()) }

func (s *Server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.nc.Close()
	}
}

// die is the death of EngineCore: the listener goes first, so that whoever has seen the 500 is refused from
// then on.
func (s *Server) die(why error) {
	s.mu.Lock()
	first := s.dead == nil && !s.closed
	if first {
		s.dead = why
		if s.o.Listener == nil {
			s.ln.Close()
		}
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.eachRank(func(r *rank) {
		r.failAll(engineDead)
		r.side.cut()
		r.stopEvents()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.busy.Load() {
			c.nc.Close()
		}
	}
}

// Dead says why the engine core died, nil while it lives.
func (s *Server) Dead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}
