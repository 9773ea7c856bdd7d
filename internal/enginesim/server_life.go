package enginesim

import (
	"bufio"
	"context"
	"net"
	"time"
)

// begin makes the context that ends with Close.
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
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	if s.door.closed || s.door.refused || s.door.dead != nil {
		nc.Close()
		return
	}
	s.door.conns[c] = true
	s.life.wg.Go(func() {
		c.serve()
		s.door.mu.Lock()
		delete(s.door.conns, c)
		s.door.mu.Unlock()
	})
}

// refuse closes the listening socket, and every idle and busy connection stays; after d, unless 0, it listens
// again.
func (s *Server) refuse(d time.Duration) {
	s.door.mu.Lock()
	s.door.refused = true
	if s.o.Listener == nil {
		s.door.ln.Close()
	}
	s.door.mu.Unlock()
	if d > 0 {
		s.spawn(func() {
			sleep(s.life.ctx, d)
			_ = s.revive() // an address taken meanwhile goes on refusing
		})
	}
}

// revive listens again at the same address, with a new core if the old one died.
func (s *Server) revive() error {
	s.door.mu.Lock()
	if s.door.closed || !s.door.refused && s.door.dead == nil {
		s.door.mu.Unlock()
		return nil
	}
	died := s.door.dead != nil
	s.door.dead, s.door.refused = nil, false
	s.door.mu.Unlock()
	if died {
		s.eachRank((*rank).restart)
		s.process.begins()
	}
	if err := s.resumeEvents(); err != nil {
		return err
	}
	if s.o.Listener != nil {
		return nil
	}
	ln, err := s.o.Listen("tcp", s.door.ln.Addr().String())
	if err != nil {
		return err
	}
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	if s.door.closed {
		return ln.Close()
	}
	s.door.ln = ln
	s.life.wg.Go(func() { s.acceptAll(ln) })
	return nil
}

// restart is the end of the process and the start of another after d. It fails only when d is 0 and the
// addresses cannot be bound.
func (s *Server) restart(d time.Duration) error {
	s.refuse(0)
	s.door.cutAll()
	s.eachRank((*rank).restart)
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

// begins notes that a process starts now.
func (s *processStart) begins() { s.born.Store(time.Now().UnixNano()) }

// started is when the process started, as /metrics and /v1/models tell it.
func (s *processStart) started() time.Time { return time.Unix(0, s.born.Load()) }

func (s *door) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.nc.Close()
	}
}

// die is the death of EngineCore: the listener goes first, so that whoever has seen the 500 is refused from
// then on.
func (s *Server) die(why error) {
	s.door.mu.Lock()
	first := s.door.dead == nil && !s.door.closed
	if first {
		s.door.dead = why
		if s.o.Listener == nil {
			s.door.ln.Close()
		}
	}
	s.door.mu.Unlock()
	if !first {
		return
	}
	s.eachRank(func(r *rank) {
		r.failAll(engineDead)
		r.side.cut()
		r.stopEvents()
	})
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	for c := range s.door.conns {
		if !c.busy.Load() {
			c.nc.Close()
		}
	}
}

// Dead says why the engine core died, nil while it lives.
func (s *Server) Dead() error {
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	return s.door.dead
}
