package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"time"
)

// bufferSize is the longest head that is read here.
const bufferSize = 8 << 10

// conn is one connection. Its goroutine owns it; hungUp and closeIdle alone are called from elsewhere.
type conn struct {
	s      *Server
	nc     net.Conn
	left   *leftovers
	usual  map[string]string
	remote string
	opened time.Time
	forget func() // ends the watch for a hang-up; set before serve

	in  input
	out []byte // memory of the bytes that are written

	by deadlines

	life serving
}

// deadlines is which deadlines are set, zero for none, so that none is set twice.
type deadlines struct {
	readBy, writeBy time.Time // the deadlines that are set, zero for none
}

// serving is where the connection is between two requests. Others than its goroutine look at it.
type serving struct {
	mu     sync.Mutex         // guards the following
	cancel context.CancelFunc // of the request that is served, nil between two
	gone   bool               // the client has hung up
	idle   bool               // nothing of a request has come
	served bool               // a request before
	closed bool               // by the server, since it was idle
}

// serve serves one request after the other, until the connection ends or goes to net/http.
func (c *conn) serve(base context.Context) {
	defer c.s.remove(c)
	base = context.WithValue(base, http.ServerContextKey, c.s.Rest)
	ctx, cancel := context.WithCancel(context.WithValue(base, http.LocalAddrContextKey, c.nc.LocalAddr()))
	defer cancel()
	c.remote = c.nc.RemoteAddr().String()
	over := func() { c.nc.Close() }
	defer func() {
		c.forget()
		over()
	}()
	for {
		h, next := c.next()
		switch {
		case next == handOver:
			over = c.handOver
			return
		case next == hangUp || !c.exchange(ctx, &h):
			return
		}
	}
}

// step is the next action on a connection.
type step uint8

const (
	hangUp step = iota
	isUsual
	handOver
)

// next waits for the next request and reads its head.
func (c *conn) next() (h head, _ step) {
	by := c.waitBy()
	for {
		if c.in.r < c.in.w {
			if !c.life.awake() {
				return h, hangUp
			}
			end, not := endOfHead(c.in.buf[c.in.r:c.in.w])
			if end > 0 {
				return c.take(end)
			}
			if c.in.slide(); not || c.in.w == bufferSize {
				return h, handOver
			}
		} else {
			c.in.r, c.in.w = 0, 0
		}
		waited := c.in.w == 0
		n, err := c.read(c.in.buf[c.in.w:], by)
		if c.in.w += n; n == 0 && err != nil {
			if c.in.r < c.in.w && errors.Is(err, io.EOF) {
				return h, handOver // the client may wait to be told that its head is cut short
			}
			return h, hangUp
		}
		if c.in.skipBreaks(); waited && c.in.r < c.in.w && c.life.served {
			by = c.headBy(time.Now())
		}
	}
}

// breaksBehindBody is how many bytes of line breaks may follow the body of a POST, as in net/http: old
// clients send some.
const breaksBehindBody = 4

// take parses the head of this length.
func (c *conn) take(end int) (head, step) {
	if most := c.s.Rest.MaxHeaderBytes; most > 0 && end > most {
		return head{}, handOver
	}
	h, ok := parse(c.in.buf[c.in.r:c.in.r+end], c.usual)
	if !ok {
		return h, handOver
	}
	c.in.r += end
	return h, isUsual
}

// waitBy is the time until which the connection waits for the next bytes. A new connection and a head that
// has begun have as long as a head may take. Any other wait may last as long as a connection may be idle.
func (c *conn) waitBy() time.Time {
	switch idle := c.s.idleTimeout(); {
	case !c.life.served:
		return c.headBy(c.opened)
	case c.in.r < c.in.w:
		return c.headBy(time.Now())
	case idle > 0:
		return time.Now().Add(idle)
	}
	return time.Time{}
}

// headBy is until when a head that began now may take.
func (c *conn) headBy(now time.Time) time.Time {
	d := c.s.Rest.ReadHeaderTimeout
	if d <= 0 {
		d = c.s.Rest.ReadTimeout
	}
	if d <= 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// idleTimeout is how long a connection may wait for its next request, 0 without end.
func (s *Server) idleTimeout() time.Duration {
	if s.Rest.IdleTimeout > 0 {
		return s.Rest.IdleTimeout
	}
	return max(s.Rest.ReadTimeout, 0)
}

// How much later than was asked for a deadline may be, so that most need not be set. It is never earlier.
const (
	lateRead  = 2 * time.Second
	lateWrite = 400 * time.Millisecond
)

// renew returns the deadline to set for by; ok says that the one that is set will do.
func renew(set, by time.Time, most time.Duration) (_ time.Time, ok bool) {
	if by.IsZero() {
		return by, set.IsZero()
	}
	late := min(max(time.Until(by), 0)/8, most)
	return by.Add(late), !set.Before(by) && set.Sub(by) <= late
}

// read reads once, until by at most.
func (c *conn) read(p []byte, by time.Time) (int, error) {
	if until, ok := renew(c.by.readBy, by, lateRead); !ok {
		if err := c.nc.SetReadDeadline(until); err != nil {
			return 0, err
		}
		c.by.readBy = until
	}
	return c.nc.Read(p)
}

// write writes a and b, which may be empty, until by at most.
func (c *conn) write(a, b []byte, by time.Time) error {
	if until, ok := renew(c.by.writeBy, by, lateWrite); !ok {
		if err := c.nc.SetWriteDeadline(until); err != nil {
			return err
		}
		c.by.writeBy = until
	}
	var err error
	if len(b) == 0 {
		_, err = c.nc.Write(a)
	} else {
		_, err = (&net.Buffers{a, b}).WriteTo(c.nc)
	}
	return err
}

// awake notes that a request has begun; false: the server has closed the connection before.
func (c *serving) awake() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = false
	return !c.closed
}

// firstGrace is how long a new connection has for its first request while the server shuts down.
const firstGrace = 5 * time.Second

// closeIdle closes the connection if it serves no request.
func (c *conn) closeIdle() {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	if c.life.idle && !c.life.closed && (c.life.served || time.Since(c.opened) > firstGrace) {
		c.life.closed = true
		c.nc.Close()
	}
}

// hungUp ends the request that is served: its client has closed the connection, or the client's own
// direction.
func (c *serving) hungUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.cancel != nil {
		c.cancel()
	}
}

// handOver gives the connection to net/http, with the bytes that were already read.
func (c *conn) handOver() {
	if c.nc.SetDeadline(time.Time{}) != nil {
		c.nc.Close()
		return
	}
	c.s.give(&begun{Conn: c.nc, s: c.s, read: append([]byte(nil), c.in.buf[c.in.r:c.in.w]...)}, c.left)
}

// parts is what an exchange is made of, in one piece of memory.
type parts struct {
	body     body
	response response
	url      url.URL
}

// exchange serves one request; false: the connection cannot carry another.
func (c *conn) exchange(ctx context.Context, h *head) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // as in net/http, what hangs on the request's context ends with it
	c.life.begin(cancel)
	p := &parts{
		body:     body{c: c, left: h.length},
		response: response{c: c, size: bodySize{declared: -1}, last: h.last, out: c.out[:0]},
		url:      url.URL{Path: h.path},
	}
	body, w := &p.body, &p.response
	w.body = body
	r := (&http.Request{
		Method: http.MethodPost, URL: &p.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h.header, Body: body, ContentLength: h.length, Host: h.host, RemoteAddr: c.remote,
		RequestURI: h.path, Close: h.last,
	}).WithContext(ctx)
	if h.length == 0 {
		r.Body = http.NoBody
	}
	if !c.handle(w, r) {
		return false
	}
	again := w.finish()
	if c.out = w.out; cap(c.out) > keepOut {
		c.out = nil
	}
	return c.finishBody(body) && again && c.end()
}

// keepOut is the most memory for writing that a connection keeps between two requests.
const keepOut = 16 << 10

// begin lets a hang-up end the request.
func (c *serving) begin(cancel context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	if c.gone {
		cancel()
	}
}

// end is the end of a request; false: no other may follow.
func (c *conn) end() bool {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	c.life.cancel = nil
	c.in.skip = breaksBehindBody
	c.in.skipBreaks()
	c.life.idle, c.life.served = c.in.r == c.in.w, true
	return !c.s.closing.Load()
}

// handle calls the handler; false: it panicked, and nothing more may be said.
func (c *conn) handle(w *response, r *http.Request) (ok bool) {
	defer func() {
		why := recover()
		if ok = why == nil; ok || why == http.ErrAbortHandler || c.s.Rest.ErrorLog == nil {
			return
		}
		c.s.Rest.ErrorLog.Printf("http: panic serving %s: %v\n%s", c.remote, why, debug.Stack())
	}()
	c.s.Rest.Handler.ServeHTTP(w, r)
	return true
}

const (
	// How much of a body that the handler left is read, so that another request can follow.
	longestUnread = 256 << 10
	restWithin    = 5 * time.Second        // for a client to send it
	linger        = 500 * time.Millisecond // time for a client to read an answer to an unfinished request
)

// finishBody reads what the handler has left of a body, so that another request can follow; false: none
// can. A connection that is closed with bytes unread is reset, which may cost the client the answer: so it
// has a moment to read it.
func (c *conn) finishBody(b *body) bool {
	if b.left == 0 {
		return true
	}
	last := b.isLast()
	b.by = time.Now().Add(restWithin)
	if last {
		b.by = time.Now().Add(linger)
		_ = closeWrite(c.nc) // what cannot be half closed is not reset either
	}
	_, err := io.Copy(io.Discard, b)
	return err == nil && !last
}
