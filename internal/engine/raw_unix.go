//go:build unix

package engine

import (
	"io"
	"net"
	"syscall"
)

// socket reaches the file descriptor: to take a buffer only once bytes have arrived, and to look at a
// connection without waiting. It makes its callbacks once for each connection, because each would be an
// allocation.
type socket struct {
	raw    syscall.RawConn // nil when the connection is no TCP socket
	tryFn  func(fd uintptr) bool
	peekFn func(fd uintptr) bool
	turnFn func(fd uintptr) bool
	got    int     // result of the callback
	gotErr error   // result of the callback
	one    [1]byte // the byte that peek read
	turn   turn    // that turnFn is in
}

// open finds the socket of nc. Under TLS it serves for peeking only.
func (c *conn) open(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		c.raw = raw
		c.tryFn = c.tryRead
		c.peekFn = c.tryPeek
		c.turnFn = c.tryTurn
	}
}

// readRaw reads behind buf[:w], and holds no buffer while it waits with nothing in it.
func (c *conn) readRaw() (int, error) {
	if err := c.raw.Read(c.tryFn); err != nil {
		return 0, err
	}
	return c.brought()
}

// brought is what tryRead read.
func (c *conn) brought() (int, error) {
	if c.got == 0 && c.gotErr == nil {
		return 0, io.EOF
	}
	return c.got, c.gotErr
}

// tryRead is readRaw's callback: false asks to be called again when the socket has bytes.
func (c *conn) tryRead(fd uintptr) bool {
	c.takeBuffer()
	n, err := syscall.Read(int(fd), c.buf[c.w:])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), c.buf[c.w:])
	}
	if err == syscall.EAGAIN {
		if c.r == c.w {
			c.dropBuffer()
		}
		return false
	}
	c.got, c.gotErr = max(n, 0), err
	return true
}

// peek looks at the socket without waiting and without taking anything from it.
func (c *conn) peek() peeked {
	if err := c.raw.Read(c.peekFn); err != nil {
		return peekEnd
	}
	return c.peeked()
}

// peeked is what tryPeek saw.
func (c *conn) peeked() peeked {
	switch {
	case c.gotErr == syscall.EAGAIN:
		return peekNothing
	case c.gotErr == nil && c.got > 0:
		return peekData
	}
	return peekEnd
}

func (c *conn) tryPeek(fd uintptr) bool {
	c.got, _, c.gotErr = syscall.Recvfrom(int(fd), c.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return true
}
