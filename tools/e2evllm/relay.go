package main

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
)

// relay passes connections on to an engine and can break them, which looks to a router like the engine's
// death.
type relay struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the following
	conns map[*net.TCPConn]bool
}

// relayTo starts a relay to a port of this machine.
func relayTo(port int) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: "127.0.0.1:" + strconv.Itoa(port), conns: map[*net.TCPConn]bool{}}
	r.running.Go(r.accept)
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.pass(c.(*net.TCPConn)) })
	}
}

// pass copies both ways until either side has ended, and ends the other side in the same way, a reset by a
// reset.
func (r *relay) pass(near *net.TCPConn) {
	c, err := net.Dial("tcp", r.to)
	if err != nil { // nobody listens there: the client sees it as if there were no relay
		_ = near.SetLinger(0)
		_ = near.Close()
		return
	}
	far := c.(*net.TCPConn)
	r.keep(near, far)
	defer r.drop(near, far)
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{near, far}, {far, near}} {
		both.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				_ = near.SetLinger(0)
				_ = far.SetLinger(0)
			}
			_ = near.Close()
			_ = far.Close()
		})
	}
	both.Wait()
}

func (r *relay) keep(conns ...*net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
}

func (r *relay) drop(conns ...*net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// reset breaks off every connection, like a kernel does for a killed process. New connections are passed on.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// close ends the relay and all that it passes on.
func (r *relay) close() error {
	err := r.listener.Close()
	r.reset()
	r.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
