// Package enginesim is a vLLM without a model: a server that speaks vLLM's wire (HTTP, events over ZMQ, KV
// transfers, metrics) around simulated engine cores, and can be told to fail as real ones do.
package enginesim

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/enginesim/core"
	"tandem/internal/kvevents"
)

// The path of a request through the server: http_conn.go reads it, http_route.go finds who answers,
// http_params.go parses the body, generation.go checks it and gives its sequences to a core, loop.go steps
// the core and carries outputs, events and orders out, and an http_*.go named after the endpoint writes the
// answer. sidechannel.go is the way between two engines, faults.go what can be made to go wrong.

// Server is one simulated vLLM API server with its engine cores. All methods are safe for concurrent use.
type Server struct {
	o      Options // immutable, as all up to ctx
	minor  int     // of the version
	url    string
	voc    *vocabulary
	routes map[string]route
	names  map[string]string
	ranks  []*rank
	peers  *peers
	ctl    *http.Server
	ctlURL string

	ctx    context.Context // ends with Close; the server's goroutines live under it
	cancel context.CancelFunc
	wg     sync.WaitGroup
	faults faults
	frozen ice                       // all of it
	stiff  ice                       // the engine alone
	loaded atomic.Pointer[[]adapter] // the adapters; replaced whole, under mu
	busy   atomic.Int64              // requests being handled, as /load tells
	born   atomic.Int64              // when the process started, Unix nanoseconds: a restart is a new one

	mu      sync.Mutex // guards the following
	ln      net.Listener
	conns   map[*conn]bool
	refused bool // accepted connections are closed at once
	dead    error
	closed  bool

	countMu     sync.Mutex // guards the following
	callsByPath map[string]int
	adminByPath map[string]int
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		o: o, routes: addPooling(routes(), o.Pooling), names: make(map[string]string), conns: make(map[*conn]bool),
		callsByPath: make(map[string]int), adminByPath: make(map[string]int), peers: newPeers(o),
	}
	loaded := make([]adapter, len(o.Adapters))
	for i, text := range o.Adapters {
		loaded[i] = adapterOf(text)
	}
	s.loaded.Store(&loaded)
	s.begins()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for path := range s.routes {
		s.names[path] = path
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	return s, nil
}

func (s *Server) start() error {
	var err error
	if s.minor, err = minorOf(s.o.Version); err != nil {
		return err
	}
	if err := s.startRanks(); err != nil {
		return err
	}
	s.voc = newVocabularyOf(s.o.Wrong.Tokenizer, s.ranks[0].cfg.Vocab)
	if s.ln = s.o.Listener; s.ln == nil {
		if s.ln, err = s.o.Listen("tcp", s.o.Addr); err != nil {
			return err
		}
	}
	s.url = cmp.Or(s.o.BaseURL, "http://"+s.ln.Addr().String())
	for _, f := range s.o.Faults {
		if err := s.Fault(f); err != nil {
			return err
		}
	}
	for _, r := range s.ranks {
		s.wg.Go(func() { r.drive(s.ctx) })
	}
	ln := s.ln
	s.wg.Go(func() { s.acceptAll(ln) })
	return s.startControl()
}

// minorOf reads 32 from "0.32.0"; a version 1.x counts as newer than all.
func minorOf(version string) (int, error) {
	part := strings.Split(version, ".")
	if len(part) < 2 {
		return 0, fmt.Errorf("version %q: want 0.MINOR", version)
	}
	minor, err := strconv.Atoi(part[1])
	if err != nil || part[0] != "0" {
		return 1000, err
	}
	return minor, nil
}

func (s *Server) versionAtLeast(minor int) bool { return s.minor >= minor }

func (s *Server) startRanks() error {
	began := time.Now()
	for n := range s.o.DPRanks {
		r := &rank{srv: s, n: n, began: began, wake: make(chan struct{}, 1), sinks: make(map[string]target)}
		c := s.o.Core
		if s.o.DPRanks > 1 {
			c.EngineID += "_dp" + strconv.Itoa(n)
		}
		ln, err := s.o.Listen("tcp", s.sideAddr(n))
		if err != nil {
			return fmt.Errorf("side channel: %w", err)
		}
		host, port, err := net.SplitHostPort(ln.Addr().String())
		if err == nil {
			c.Port, _ = strconv.Atoi(port)
			c.Host = cmp.Or(c.Host, host)
		}
		r.core = core.New(c)
		r.cfg = r.core.Config()
		r.side = newSide(r, ln)
		s.ranks = append(s.ranks, r)
		if err := r.startEvents(); err != nil {
			return fmt.Errorf("events: %w", err)
		}
	}
	return nil
}

// sideAddr is where the side channel of a rank listens: Core.Port plus rank as in vLLM, a free port when none
// is set.
func (s *Server) sideAddr(n int) string {
	if s.o.Core.Port == 0 {
		return net.JoinHostPort(cmp.Or(s.o.Core.Host, "127.0.0.1"), "0")
	}
	return net.JoinHostPort(cmp.Or(s.o.Core.Host, "127.0.0.1"), strconv.Itoa(s.o.Core.Port+n))
}

// startEvents binds the publisher, and remembers the ports it got for the next time.
func (r *rank) startEvents() error {
	o := r.srv.o
	if o.EventsEndpoint == "" {
		return nil
	}
	if r.bind.Endpoint == "" {
		r.bind = r.publisherOptions()
	}
	if !r.srv.listens() {
		return nil
	}
	p, err := kvevents.NewPublisher(r.bind)
	if err != nil {
		return err
	}
	r.bind.Endpoint, r.bind.Replay = p.Endpoints()
	r.pub.Store(p)
	return nil
}

// Events returns the addresses of the events of the server's first rank, with real ports; "" for those that
// it does not have.
func (s *Server) Events() (endpoint, replay string) {
	p := s.ranks[0].pub.Load()
	if p == nil {
		return "", ""
	}
	return p.Endpoints()
}

// stopEvents closes the sockets, as the end of the process does.
func (r *rank) stopEvents() {
	if p := r.pub.Swap(nil); p != nil {
		p.Close()
	}
}

func (r *rank) publisherOptions() kvevents.PublisherOptions {
	o := r.srv.o
	p := kvevents.PublisherOptions{
		Context: o.ZMQ, Endpoint: offsetPort(o.EventsEndpoint, r.n), Topic: o.Topic, Form: kvevents.Map,
		ReplayFrames: 4,
	}
	p.BufferSteps = o.Wrong.bufferSteps()
	if !o.NoReplay {
		p.Replay = offsetPort(cmp.Or(o.ReplayEndpoint, freePort(o.EventsEndpoint)), r.n)
	}
	if !r.srv.versionAtLeast(24) {
		p.Form = kvevents.Array
	}
	if !r.srv.versionAtLeast(26) {
		p.ReplayFrames = 3
	}
	return p
}

// offsetPort adds a rank to the port, which stays when it is 0.
func offsetPort(endpoint string, n int) string {
	i := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[i+1:])
	if err != nil || port == 0 || n == 0 {
		return endpoint
	}
	return endpoint[:i+1] + strconv.Itoa(port+n)
}

func freePort(endpoint string) string { return endpoint[:strings.LastIndexByte(endpoint, ':')+1] + "0" }

func (s *Server) startControl() error {
	if s.o.Control == "" {
		return nil
	}
	ln, err := s.o.Listen("tcp", s.o.Control)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	s.ctlURL = "http://" + ln.Addr().String()
	s.ctl = &http.Server{Handler: s.control(), ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.ctl.Serve(ln) }) // ends with Close
	return nil
}

// spawn starts a goroutine that Close waits for; after Close it does nothing.
func (s *Server) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(f)
	}
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

// resumeEvents binds the publishers that went with the process, at the addresses they had.
func (s *Server) resumeEvents() error {
	for _, r := range s.ranks {
		if r.pub.Load() == nil {
			if err := r.startEvents(); err != nil {
				return err
			}
		}
	}
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

// URL is the base of the HTTP server, without a slash at the end.
func (s *Server) URL() string { return s.url }

// ControlURL is the base of the control listener, "" without one.
func (s *Server) ControlURL() string { return s.ctlURL }

// EngineID is the id of a rank's core as peers know it; a restart changes it.
func (s *Server) EngineID(rank int) string {
	r := s.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.EngineID()
}

// Endpoints are the addresses that a rank publishes its events at, with real ports; "" without events.
func (s *Server) Endpoints(rank int) (events, replay string) {
	return s.ranks[rank].bind.Endpoint, s.ranks[rank].bind.Replay
}

// Stats is the state of every rank's core.
func (s *Server) Stats() []core.Stats {
	var all []core.Stats
	for _, r := range s.ranks {
		all = append(all, r.stats())
	}
	return all
}

// HeldBlocks is the number of KV blocks that requests and leases hold now, over all ranks: 0 when nothing
// leaks.
func (s *Server) HeldBlocks() int {
	held := 0
	for _, st := range s.Stats() {
		held += st.Blocks - 1 - st.FreeBlocks
	}
	return held
}

// OpenRequests is the number of requests in the cores, over all ranks.
func (s *Server) OpenRequests() int {
	open := 0
	for _, r := range s.ranks {
		open += int(r.open.Load())
	}
	return open
}

// Close stops listening, cuts every connection and returns when all goroutines have left. A second call does
// nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	var err error
	if s.ln != nil {
		if e := s.ln.Close(); !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	if s.ctl != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = errors.Join(err, s.ctl.Shutdown(ctx)) // waits for a fault that is being injected
		cancel()
	}
	s.cutAll()
	for _, r := range s.ranks {
		r.side.close()
	}
	s.peers.close()
	s.wg.Wait()
	s.eachRank((*rank).stopEvents)
	return err
}
