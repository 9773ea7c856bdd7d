// Package http1 serves the usual requests of HTTP/1.1 on the goroutine of their connection, and leaves
// every other to net/http.
//
// net/http handles every request, at a price for each: a second goroutine that watches for the client's end,
// deadlines that are set and cleared, two buffers and two dozen objects. A usual request is a POST to one of
// a few paths, with a body of known length and a head that has one reading only. This package never
// interprets anything else, nor a request that two readers could understand differently. Such a connection
// goes to net/http with all bytes that were read, and stays there.
package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves listeners until it is shut down. Its methods correspond to the methods of [http.Server].
type Server struct {
	// Rest serves all unusual requests. Its handler, limits, timeouts and base context hold for usual requests
	// too.
	Rest *http.Server
	// Usual are the paths of usual requests.
	Usual []string
	// MaxConns is how many connections of clients are open at a time, 0 for no limit.
	MaxConns int
	// Refused, unless nil, is called for each connection that found no place. It must not wait.
	Refused func()

	closing atomic.Bool

	mu        sync.Mutex // guards the following
	conns     map[*conn]struct{}
	given     map[*begun]time.Time // to net/http, when, until it closes them
	listeners map[net.Listener]struct{}

	places places
}

// Serve accepts connections from l until the server is shut down or closed, and then returns
// [http.ErrServerClosed]; or until l fails.
func (s *Server) Serve(l net.Listener) error {
	if !s.track(l) {
		return http.ErrServerClosed
	}
	defer s.untrack(l)
	base := context.Background()
	if s.Rest.BaseContext != nil {
		base = s.Rest.BaseContext(l)
	}
	left := newLeftovers(l.Addr())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Rest.Serve(left) // it says no more than that its listener was closed
	}()
	err := s.accept(base, l, left)
	if s.closing.Load() {
		<-ended // connections that have been accepted may go to net/http until it is shut down too
	}
	return err
}

// accept serves what connects to l.
func (s *Server) accept(base context.Context, l net.Listener, left *leftovers) error {
	watch := newHangups() // ends when the last connection of l has
	defer watch.release()
	usual := make(map[string]string, len(s.Usual))
	for _, path := range s.Usual {
		usual[path] = path
	}
	var wait time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case s.closing.Load():
			if err == nil {
				nc.Close()
			}
			return http.ErrServerClosed
		case err != nil && isTemporary(err): // too many files are open
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			time.Sleep(wait)
			continue
		case err != nil:
			return err
		}
		wait = 0
		if !s.admit(nc) {
			continue
		}
		c := &conn{s: s, nc: nc, left: left, usual: usual, opened: time.Now(), life: serving{idle: true}}
		if !watch.add(c) { // TLS, or a system that does not report hang-ups
			s.giveWhole(nc, left)
			continue
		}
		s.add(c)
		go c.serve(base) // Shutdown and Close wait for it, or end it
	}
}

func isTemporary(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Temporary() //nolint:staticcheck // what net/http asks too: nothing else tells these errors
}

func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if s.listeners == nil {
		s.listeners = map[net.Listener]struct{}{}
		s.conns = map[*conn]struct{}{}
		s.given = map[*begun]time.Time{}
		s.places.direct = map[net.Conn]struct{}{}
		s.watchRest()
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) untrack(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	l.Close()
}

func (s *Server) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.places.open--
}

// stop closes the listeners, so that no client can connect any more.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for l := range s.listeners {
		l.Close()
	}
}

// Shutdown lets requests end and closes connections that serve none. It returns when no connection is left,
// or the error of ctx when ctx ends first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	s.Rest.SetKeepAlivesEnabled(false) // closes idle connections; unusual requests may still come
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for s.closeIdle() > 0 {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.Rest.Shutdown(ctx))
		case <-look.C:
		}
	}
	return s.Rest.Shutdown(ctx)
}

// closeIdle closes the connections that serve no request. It returns how many connections still keep
// net/http from shutting down: the connections served here, and those handed over just now. After its
// shutdown, net/http reads requests and answers none.
func (s *Server) closeIdle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.conns)
	for c := range s.conns {
		c.closeIdle()
	}
	for _, since := range s.given {
		if time.Since(since) < firstGrace {
			n++
		}
	}
	return n
}

// Close closes every connection.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	return s.Rest.Close()
}

// leftovers is the listener from which net/http accepts the connections that are not served here.
type leftovers struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newLeftovers(addr net.Addr) *leftovers {
	return &leftovers{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands nc over, or closes it if net/http accepts no connections any more.
func (l *leftovers) give(nc net.Conn) {
	select {
	case l.conns <- nc:
	case <-l.closed:
		nc.Close()
	}
}

// Accept implements [net.Listener].
func (l *leftovers) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *leftovers) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *leftovers) Addr() net.Addr { return l.addr }

// begun is a connection from which some bytes were read already.
type begun struct {
	net.Conn
	s    *Server
	read []byte
}

// give hands a connection over to net/http that began here.
func (s *Server) give(b *begun, left *leftovers) {
	s.mu.Lock()
	s.given[b] = time.Now()
	s.places.open++ // until net/http closes it; its goroutine here gives its place back
	s.mu.Unlock()
	left.give(b)
}

// Close implements [net.Conn].
func (b *begun) Close() error {
	b.s.mu.Lock()
	if _, open := b.s.given[b]; open {
		delete(b.s.given, b)
		b.s.places.open--
	}
	b.s.mu.Unlock()
	return b.Conn.Close()
}

// Read implements [net.Conn].
func (b *begun) Read(p []byte) (int, error) {
	if len(b.read) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.read)
	b.read = b.read[n:]
	return n, nil
}

// CloseWrite lets net/http say that nothing follows, and read on.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
