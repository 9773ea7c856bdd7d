//go:build unix

package engine

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
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

// turn is a request on its way through [conn.inTurn].
type turn struct {
	out   *buffer // the request lies in it; nil once it has been given back
	n     int     // bytes of the request
	wrote int
	at    time.Time // when the write returned, zero before it
	saw   peeked    // on the connection before the write; what was kept carries a request only if nothing
	dead  bool      // by what saw says, nothing is written
	waits bool      // for bytes that were not there before the write
	err   error     // of the write
}

// inTurn writes the request in out[:n] and reads the first bytes of its answer, in one turn of Go's poller.
// The poller watches the socket from before the write, so no read is tried before the answer can be there.
// inTurn first looks for earlier bytes on the connection, because the poller would not report them again.
// out is given back before the wait. early is the result of [conn.send].
func (c *conn) inTurn(out *buffer, n int) (at time.Time, early bool, _ *Error) {
	c.turn = turn{out: out, n: n}
	err := c.raw.Read(c.turnFn)
	t := c.turn
	c.turn = turn{}
	if t.out != nil {
		defer putBuffer(out)
	}
	switch {
	case t.dead:
		return at, false, errDead(t.saw)
	case t.at.IsZero(): // the connection was closed before
		return at, false, &Error{Phase: Write, Err: err, silent: true, unreachable: true}
	case t.wrote < n:
		return c.goOn(out, t)
	case !t.waits:
		return t.at, false, nil
	}
	if err == nil {
		n, err = c.brought()
		c.w += n
	}
	if err != nil {
		return t.at, false, &Error{Phase: Head, Sent: true, Err: cutShort(err, false), silent: true}
	}
	return t.at, false, nil
}

// goOn writes what inTurn could not, and waits for nothing.
func (c *conn) goOn(out *buffer, t turn) (at time.Time, early bool, _ *Error) {
	n, err := int64(t.wrote), t.err
	if err == nil {
		var more int64
		more, err = c.write(out[t.wrote:t.n])
		n += more
	}
	return c.sent(n, err)
}

// tryTurn is inTurn's callback: false asks to be called again when the socket has bytes, or has ended.
func (c *conn) tryTurn(fd uintptr) bool {
	t := &c.turn
	if !t.at.IsZero() {
		return c.tryRead(fd)
	}
	c.tryPeek(fd)
	t.saw = c.peeked()
	t.waits = t.saw == peekNothing
	if t.dead = c.kept() && !t.waits; t.dead {
		return true
	}
	n, err := syscall.Write(int(fd), t.out[:t.n])
	t.at, t.wrote = time.Now(), max(n, 0)
	if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
		t.err = os.NewSyscallError("write", err)
	}
	if t.wrote < t.n {
		return true
	}
	putBuffer(t.out)
	t.out = nil
	return !t.waits
}
