//go:build unix

package engine

import (
	"os"
	"syscall"
	"time"
)

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
