// Package enginesim is a vLLM without a model: a server with vLLM's interfaces (HTTP, events over ZMQ, KV
// transfers, metrics) around simulated engine cores. Faults make it fail like real engines.
package enginesim

import (
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

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// The path of a request: http_conn.go reads it, http_route.go finds the handler, and http_params.go parses
// the body. http_sampling.go, http_rare.go and http_prompt.go parse parts of the body. pydantic.go and
// *_body.go check bodies that pydantic parses. generation_check.go validates the request, and generation.go
// adds it to a core. loop.go steps the core, delivers outputs and publishes events; loop_peers.go carries out
// the core's orders. The http_*.go file of the endpoint writes the answer. server_life.go starts, ends and
// restarts the process. sidechannel.go connects two engines. faults.go lists the faults.

// Server is one simulated vLLM API server with its engine cores. All methods are safe for concurrent use.
type Server struct {
	o        Options // immutable
	process  processStart
	url      string
	model    servedModel
	table    servedPaths
	cores    engineCores
	injector controlListener

	life    serverLife
	faults  faults
	freezes frozenParts
	calls   callCounts

	listening listening
}

// engineCores holds the engine cores, and the connections to cores of other servers.
type engineCores struct {
	ranks     []*rank
	peers     *peers
	bootstrap *http.Server // Mooncake's bootstrap server, which locates the ranks; nil without Mooncake
}

// servedModel is the model that the server serves.
type servedModel struct {
	voc    *vocabulary
	loaded atomic.Pointer[[]adapter] // the adapters; replaced whole, under mu
}

// processStart is the version of vLLM and the start of the process.
type processStart struct {
	minor int          // minor version
	born  atomic.Int64 // start of the process, Unix nanoseconds; a restart sets it
}

// servedPaths maps paths to handlers. It does not change.
type servedPaths struct {
	routes map[string]route
	names  map[string]string
}

// controlListener is the listener for faults.
type controlListener struct {
	ctl    *http.Server
	ctlURL string
}

// serverLife ends the server's goroutines.
type serverLife struct {
	ctx    context.Context // ends with Close; all goroutines of the server use it
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// frozenParts holds the parts that can be frozen.
type frozenParts struct {
	server standstill // the whole server
	engine standstill // the engine alone

	compiled atomic.Bool // the function for log-probabilities is compiled
}

// listening is the listener and its accepted connections.
type listening struct {
	mu      sync.Mutex // guards the following
	ln      net.Listener
	conns   map[*conn]bool
	refused bool // accepted connections are closed at once
	dead    error
	closed  bool
}

// callCounts counts requests.
type callCounts struct {
	busy        atomic.Int64 // requests being handled, for /load
	countMu     sync.Mutex   // guards the following
	callsByPath map[string]int
	adminByPath map[string]int
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		o: o,
		table: servedPaths{
			routes: addPooling(routes(), o.Pooling), names: make(map[string]string),
		},
		listening: listening{conns: make(map[*conn]bool)},
		calls:     callCounts{callsByPath: make(map[string]int), adminByPath: make(map[string]int)},
		cores:     engineCores{peers: newPeers(o)},
	}
	loaded := make([]adapter, len(o.Adapters))
	for i, text := range o.Adapters {
		loaded[i] = adapterOf(text)
	}
	s.model.loaded.Store(&loaded)
	s.process.begins()
	s.life.begin()
	for path := range s.table.routes {
		s.table.names[path] = path
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	return s, nil
}

func (s *Server) start() error {
	var err error
	if s.process.minor, err = minorOf(s.o.Version); err != nil {
		return err
	}
	if err := s.startRanks(); err != nil {
		return err
	}
	s.model.voc = newVocabularyOf(s.o.Wrong.Tokenizer, s.cores.ranks[0].cfg.Vocab)
	if s.listening.ln = s.o.Listener; s.listening.ln == nil {
		if s.listening.ln, err = s.o.Listen("tcp", s.o.Addr); err != nil {
			return err
		}
	}
	s.url = cmp.Or(s.o.BaseURL, "http://"+s.listening.ln.Addr().String())
	for _, f := range s.o.Faults {
		if err := s.Fault(f); err != nil {
			return err
		}
	}
	for _, r := range s.cores.ranks {
		s.life.wg.Go(func() { r.drive(s.life.ctx) })
	}
	ln := s.listening.ln
	s.life.wg.Go(func() { s.acceptAll(ln) })
	if err := s.startBootstrap(); err != nil {
		return err
	}
	return s.startControl()
}

// minorOf reads 32 from "0.32.0". A version 1.x counts as newer than all 0.x.
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

func (s *processStart) versionAtLeast(minor int) bool { return s.minor >= minor }

func (s *Server) startRanks() error {
	began := time.Now()
	for n := range s.o.DPRanks {
		r := &rank{srv: s, n: n, began: began, wake: make(chan struct{}, 1), sinks: make(map[string]target)}
		c := s.o.Core
		c.Registrations = s.process.versionAtLeast(33)
		c.Rank, c.DPSize = n, s.o.DPRanks
		c.Tier.Began = began.Sub(time.Unix(0, 0))
		if s.o.DPRanks > 1 {
			c.EngineID += "_dp" + strconv.Itoa(n)
		}
		if err := c.CheckRanks(); err != nil {
			return err
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
		s.cores.peers.core = r.cfg
		r.side = newSide(r, ln)
		s.cores.ranks = append(s.cores.ranks, r)
		if err := s.listenP2P(r); err != nil {
			return fmt.Errorf("P2P tier: %w", err)
		}
		if err := r.startEvents(); err != nil {
			return fmt.Errorf("events: %w", err)
		}
	}
	return nil
}

// sideAddr is the address of a rank's side channel: Core.Port plus rank as in vLLM, or a free port if
// Core.Port is 0.
func (s *Server) sideAddr(n int) string {
	if s.o.Core.Port == 0 {
		return net.JoinHostPort(cmp.Or(s.o.Core.Host, "127.0.0.1"), "0")
	}
	return net.JoinHostPort(cmp.Or(s.o.Core.Host, "127.0.0.1"), strconv.Itoa(s.o.Core.Port+n))
}

func (s *Server) startControl() error {
	if s.o.Control == "" {
		return nil
	}
	ln, err := s.o.Listen("tcp", s.o.Control)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	s.injector.ctlURL = "http://" + ln.Addr().String()
	s.injector.ctl = &http.Server{Handler: s.control(), ReadHeaderTimeout: 10 * time.Second}
	s.life.wg.Go(func() { _ = s.injector.ctl.Serve(ln) }) // ends with Close
	return nil
}

// spawn starts a goroutine that Close waits for. After Close, it does nothing.
func (s *Server) spawn(f func()) {
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	if !s.listening.closed {
		s.life.wg.Go(f)
	}
}

// URL is the base URL of the server, without a final slash.
func (s *Server) URL() string { return s.url }

// ControlURL is the base URL of the control listener, "" without one.
func (s *Server) ControlURL() string { return s.injector.ctlURL }

// EngineID is the id of a rank's core for peers. A restart changes it.
func (s *Server) EngineID(rank int) string {
	r := s.cores.ranks[rank]
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.EngineID()
}

// Stats returns the state of every rank's core.
func (s *Server) Stats() []core.Stats {
	var all []core.Stats
	for _, r := range s.cores.ranks {
		all = append(all, r.stats())
	}
	return all
}

// HeldBlocks returns the number of KV blocks that requests and leases hold on all ranks. An idle server
// without a leak holds 0.
func (s *Server) HeldBlocks() int {
	held := 0
	for _, st := range s.Stats() {
		held += st.Blocks - 1 - st.FreeBlocks
	}
	return held
}

// OpenRequests returns the number of requests in the cores of all ranks.
func (s *Server) OpenRequests() int {
	open := 0
	for _, r := range s.cores.ranks {
		open += int(r.open.Load())
	}
	return open
}

// Close stops listening, cuts every connection and waits for all goroutines. A second call does nothing.
func (s *Server) Close() error {
	s.listening.mu.Lock()
	if s.listening.closed {
		s.listening.mu.Unlock()
		return nil
	}
	s.listening.closed = true
	s.listening.mu.Unlock()
	s.life.cancel()
	var err error
	if s.listening.ln != nil {
		if e := s.listening.ln.Close(); !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	if s.cores.bootstrap != nil {
		err = errors.Join(err, s.cores.bootstrap.Close())
	}
	if s.injector.ctl != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = errors.Join(err, s.injector.ctl.Shutdown(ctx)) // waits for a fault that is being injected
		cancel()
	}
	s.listening.cutAll()
	for _, r := range s.cores.ranks {
		r.side.close()
		if r.p2p != nil {
			r.p2p.close()
		}
	}
	s.cores.peers.close()
	s.life.wg.Wait()
	s.eachRank((*rank).stopEvents)
	return err
}
