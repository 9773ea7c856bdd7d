// Package memnet is a network in memory: addresses to listen at and to dial, which can be refused and cut. It
// works in the fake time of testing/synctest.
package memnet

import (
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Net is one network. The zero value is an empty one. Safe for concurrent use.
//
// A connection is a [net.Pipe]: nothing is buffered, so a write returns when the other side has read it.
type Net struct {
	mu        sync.Mutex // guards the following
	listeners map[string]*listener
	refused   map[string]bool
	ended     map[string]bool       // taken, and closed behind the first bytes
	open      map[string][]net.Conn // far ends, by the address that was dialled
}

// Listen takes an address, host:port as diallers will say it.
func (n *Net) Listen(_, addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{
			Op: "listen", Net: "mem", Addr: address(addr), Err: os.NewSyscallError("bind", syscall.EADDRINUSE),
		}
	}
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
		n.refused = map[string]bool{}
		n.ended = map[string]bool{}
		n.open = map[string][]net.Conn{}
	}
	l := &listener{net: n, addr: address(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// Dial connects to a listener. Without a listener it is refused. It blocks until the listener accepts or ctx
// ends.
func (n *Net) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	if n.refused[addr] {
		l = nil
	}
	ended := n.ended[addr]
	n.mu.Unlock()
	switch {
	case ended:
		return endedConn(), nil
	case l == nil:
		return nil, refused(addr)
	}
	near, far := pipe()
	n.mu.Lock()
	n.open[addr] = append(n.open[addr], far)
	n.mu.Unlock()
	select {
	case l.conns <- far:
	case <-l.closed:
		return nil, refused(addr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return near, nil
}

// Refuse makes new connections to addr fail, or lets them through again. Existing connections stay.
func (n *Net) Refuse(addr string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[addr] = yes
}

// EndEach makes new connections to addr close after their first bytes, like a proxy whose server is gone, or
// lets them through again. Existing connections stay.
func (n *Net) EndEach(addr string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[addr] = yes
}

// endedConn is a connection whose other end reads once and is closed.
func endedConn() net.Conn {
	near, far := pipe()
	go func() {
		_, _ = far.Read(make([]byte, 1<<20))
		_ = far.Close()
	}()
	return near
}

// Cut closes every connection to addr.
func (n *Net) Cut(addr string) {
	n.mu.Lock()
	open := slices.Clone(n.open[addr])
	delete(n.open, addr)
	n.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// end is one end of a connection.
type end struct {
	net.Conn
	other *end

	mu     sync.Mutex // guards the following
	closed bool
	tell   func() // of the other's owner, that this end is closed
}

func pipe() (near, far *end) {
	a, b := net.Pipe()
	near, far = &end{Conn: a}, &end{Conn: b}
	near.other, far.other = far, near
	return near, far
}

// Close implements [net.Conn].
func (e *end) Close() error {
	err := e.Conn.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed = true; e.tell != nil {
		e.tell()
		e.tell = nil
	}
	return err
}

// OnHangUp calls f when the other end is closed, or at once if it is closed already. f must not block. stop
// cancels it.
func (e *end) OnHangUp(f func()) (stop func()) {
	o := e.other
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tell = f; o.closed {
		f()
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.tell = nil
	}
}

func refused(addr string) error {
	return &net.OpError{
		Op: "dial", Net: "mem", Addr: address(addr), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
}

type listener struct {
	net    *Net
	addr   address
	conns  chan net.Conn
	closed chan struct{} // closed under net.mu
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The address is free again.
func (l *listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.net.listeners[string(l.addr)] != l {
		return net.ErrClosed
	}
	delete(l.net.listeners, string(l.addr))
	close(l.closed)
	return nil
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return l.addr }

type address string

func (address) Network() string  { return "mem" }
func (a address) String() string { return string(a) }
