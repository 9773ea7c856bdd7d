package engine

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// bufferSize is how much one read may bring. A stream that waits holds no buffer, if its connection is plain
// TCP.
const bufferSize = 32 << 10

type buffer [bufferSize]byte

// spares keeps 2 MiB of buffers over garbage collections, which empty a sync.Pool and come every few
// milliseconds under load; further buffers go to the pool.
var (
	spares  = make(chan *buffer, 64)
	surplus sync.Pool
)

func getBuffer() *buffer {
	select {
	case b := <-spares:
		return b
	default:
	}
	if b, ok := surplus.Get().(*buffer); ok {
		return b
	}
	return new(buffer)
}

func putBuffer(b *buffer) {
	select {
	case spares <- b:
	default:
		surplus.Put(b)
	}
}

// conn is one connection. One request at a time owns it; abort alone may be called from elsewhere.
type conn struct {
	nc    net.Conn
	tls   *tls.Config // TLS settings of the dial, nil for plain TCP
	since time.Time   // when it became idle, zero before its first request ended; guarded by the idle pool

	sealed bool // TLS: a write that was interrupted cannot go on

	names names // which answers name their questions on it

	socket // of a *net.TCPConn, with or without TLS above it

	buf  *buffer // nil when nothing is buffered
	r, w int     // buf[r:w] has been read from the socket and not used yet

	abortFn func() // abort, made once: a method value is an allocation

	patience time.Duration // how long a read may wait, 0 without end
	renewed  time.Time     // when the read deadline was last set for patience
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc}
	if tc, ok := nc.(*tls.Conn); ok {
		c.sealed, nc = true, tc.NetConn()
	}
	c.abortFn = c.abort
	c.open(nc)
	return c
}

// abort closes the connection even while another goroutine uses it, without TLS's farewell, which may block.
func (c *conn) abort() {
	if tc, ok := c.nc.(*tls.Conn); ok {
		tc.NetConn().Close()
		return
	}
	c.nc.Close()
}

func (c *conn) close() {
	c.abort()
	c.dropBuffer()
}

// finish closes a connection whose answer has been read to its end. No bytes are under way on it, so its
// port is free at once. A port that waits for stragglers (TIME_WAIT) is lost for a minute, and each engine
// has some 28,000 ports.
func (c *conn) finish() {
	nc := c.nc
	if tc, ok := nc.(*tls.Conn); ok {
		nc = tc.NetConn()
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else the port is free a minute later
	}
	c.close()
}

// rest is the bytes that have been read and not used.
func (c *conn) rest() []byte {
	if c.buf == nil {
		return nil
	}
	return c.buf[c.r:c.w]
}

func (c *conn) takeBuffer() {
	if c.buf == nil {
		c.buf = getBuffer()
		c.r = 0
		c.w = 0
	}
}

func (c *conn) dropBuffer() {
	if c.buf != nil {
		putBuffer(c.buf)
		c.buf = nil
		c.r = 0
		c.w = 0
	}
}

var errFull = errors.New("buffer is full")

// fill waits for bytes and reads once, behind the unused bytes. A nil error means that there are more bytes
// than before.
func (c *conn) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == bufferSize {
		return errFull
	}
	c.renewDeadline()
	n, err := c.read()
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (c *conn) read() (int, error) {
	if c.raw != nil && !c.sealed {
		return c.readRaw()
	}
	c.takeBuffer()
	return c.nc.Read(c.buf[c.w:])
}

// renewDeadline moves the read deadline on, though not at each read: setting a deadline costs more than
// reading bytes that have arrived. The deadline comes up to an eighth late, never early.
func (c *conn) renewDeadline() {
	if c.patience == 0 {
		return
	}
	now := time.Now()
	if now.Sub(c.renewed) < c.patience/8 {
		return
	}
	c.renewed = now
	c.nc.SetReadDeadline(now.Add(c.patience + c.patience/8))
}

func (c *conn) setPatience(d time.Duration) {
	if d == 0 && c.patience > 0 {
		c.nc.SetReadDeadline(time.Time{})
	}
	c.patience, c.renewed = d, time.Time{}
}

// send writes r, and waits for its answer where one step does both. at is the time of the write. early says
// that the engine answered before it had read the whole body, and that the rest will not be sent.
func (c *conn) send(cl *Client, r *Request) (at time.Time, early bool, _ *Error) {
	out := getBuffer()
	head := r.appendHead(out[:0], cl.prefix, cl.way.Load().fixed)
	if r.Last != nil {
		if err := r.Last(); err != nil {
			putBuffer(out)
			return at, false, &Error{Phase: Write, Err: err}
		}
	}
	short := len(head)+len(r.Body) <= cap(head)
	if short && c.raw != nil && !c.sealed {
		return c.inTurn(out, len(append(head, r.Body...)))
	}
	defer putBuffer(out)
	if c.kept() {
		if saw := c.look(); saw != peekNothing {
			return at, false, errDead(saw)
		}
	}
	var n int64
	var err error
	if short {
		n, err = c.write(append(head, r.Body...))
	} else {
		early, n, err = c.writeLong(head, r.Body)
	}
	at, cut, failed := c.sent(n, err)
	return at, early || cut, failed
}

// sent judges a write of n bytes that ended now: one that failed behind the answer that the engine sent
// before it hung up, which is early, did well.
func (c *conn) sent(n int64, err error) (at time.Time, early bool, _ *Error) {
	if err == nil || n > 0 && c.answered(farewell) {
		return time.Now(), err != nil, nil
	}
	return at, false, &Error{Phase: Write, Sent: n > 0, Err: err, silent: true, unreachable: n == 0}
}

// kept reports whether the connection carried a request before: it is looked at before its next.
func (c *conn) kept() bool { return !c.since.IsZero() }

// errDead is a connection that cannot carry a request any more. This was seen before anything was written.
func errDead(saw peeked) *Error {
	return &Error{Phase: Write, Err: net.ErrClosed, dead: true, spoke: saw == peekData}
}

func (c *conn) write(b []byte) (int64, error) {
	n, err := c.nc.Write(b)
	return int64(n), err
}

const (
	// How often a write that does not get on looks whether the answer is there already.
	glance   = 100 * time.Millisecond
	farewell = 100 * time.Millisecond // how long the answer may take that an engine sent before it hung up
)

// writeLong writes without copying body. An engine may refuse a long body and stop reading it: the answer is
// looked for while the write does not get on.
func (c *conn) writeLong(head, body []byte) (early bool, n int64, err error) {
	if c.sealed {
		return c.writeSealed(head, body)
	}
	out := net.Buffers{head, body}
	for {
		c.nc.SetWriteDeadline(time.Now().Add(glance))
		var m int64
		m, err = out.WriteTo(c.nc)
		n += m
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if n > 0 && c.answered(0) {
			return true, n, nil
		}
	}
	c.nc.SetWriteDeadline(time.Time{})
	return false, n, err
}

// writeSealed does the same over TLS, where a write that a deadline interrupts cannot go on. So the write
// runs beside the caller, which looks for the answer meanwhile. The write is interrupted only when nothing
// more needs to be written. It has ended when writeSealed returns: body is the caller's again.
func (c *conn) writeSealed(head, body []byte) (early bool, n int64, err error) {
	written := make(chan struct{})
	go func() { // joined below in every case
		defer close(written)
		out := net.Buffers{head, body}
		n, err = out.WriteTo(c.nc)
	}()
	look := time.NewTicker(glance)
	defer look.Stop()
	for {
		select {
		case <-written:
			return false, n, err
		case <-look.C:
		}
		if c.raw != nil && c.peek() != peekData || !c.answered(0) {
			continue
		}
		c.nc.SetWriteDeadline(time.Unix(1, 0))
		<-written
		return err != nil, n, nil
	}
}

// answered reports whether bytes of an answer are there, waiting for d at most.
func (c *conn) answered(d time.Duration) bool {
	if c.raw != nil && !c.sealed && d == 0 {
		return c.peek() == peekData
	}
	c.nc.SetReadDeadline(time.Now().Add(d + time.Millisecond))
	err := c.fill()
	c.nc.SetReadDeadline(time.Time{})
	return err == nil
}

// look reports whether an idle connection can carry a request, as far as a look without waiting can show. It
// cannot after the engine hung up, and not after the engine sent something unasked.
func (c *conn) look() peeked {
	switch {
	case c.sealed:
		return c.lookInside()
	case c.raw == nil:
		return peekNothing
	}
	return c.peek()
}

// lookInside is look for TLS, which may already have read unasked bytes from the socket. The bytes in the
// socket may be the close message of TLS.
func (c *conn) lookInside() peeked {
	var one [1]byte
	c.nc.SetReadDeadline(time.Unix(1, 0)) // look without waiting for more bytes
	n, err := c.nc.Read(one[:])
	c.nc.SetReadDeadline(time.Time{})
	switch {
	case n > 0:
		return peekData
	case !errors.Is(err, os.ErrDeadlineExceeded), c.raw != nil && c.peek() != peekNothing:
		return peekEnd
	}
	return peekNothing
}

// peeked is what a look at a socket found.
type peeked uint8

const (
	peekNothing peeked = iota // nothing to read, the connection stands
	peekData
	peekEnd // closed or broken
)
