package enginesim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A small HTTP/1.1 server. net/http would use about as much of the benchmark's two cores as the router under
// test. It also hides what faults must control: half an answer, a cut without a terminator, a refused
// connection.
//
// Each connection has two goroutines. The reader parses one request ahead, so it notices at once when the
// client disconnects. The handler answers the requests in order.

const (
	maxHead = 64 << 10
	maxBody = 256 << 20
)

var errBadHTTP = errors.New("bad request")

// conn is one client connection.
type conn struct {
	srv   *Server
	nc    net.Conn
	br    *bufio.Reader
	calls chan *call    // reader to handler, unbuffered
	gone  chan struct{} // closed when the client has disconnected
	busy  atomic.Bool   // a request is being handled

	last      []byte    // the previous answer, kept while there are faults; used by the handler only
	idleUntil time.Time // end of the idle time, zero before the first request; used by the handler only
}

// call is one request and its answer. After the reader has sent it to the handler, it belongs to the handler.
type call struct {
	c      *conn
	method []byte
	path   string
	query  string
	head   header
	body   []byte
	out    []byte // answer, not written yet
	part   []byte // scratch for one event or body
	events int    // SSE events written so far
	fault  callFault
	begun  bool // the head of a streamed answer is in out or sent
	broken bool // the connection cannot be used any more
}

// callFault is the effect of a fault on the answer.
type callFault struct {
	cut    int  // cut the connection after this many events; 0: never
	silent bool // at the cut, stop sending instead of closing
	fails  bool // at the cut, send that the engine has failed
}

var callPool = sync.Pool{New: func() any { return new(call) }}

func newCall(c *conn) *call {
	k := callPool.Get().(*call)
	*k = call{c: c, method: k.method[:0], body: k.body[:0], out: k.out[:0], part: k.part[:0]}
	return k
}

// release returns the call to the pool, unless a long prompt has grown its buffers.
func (k *call) release() {
	const keep = 4 << 20
	if cap(k.body) > keep || cap(k.out) > keep {
		return
	}
	k.c = nil
	callPool.Put(k)
}

// serve runs both goroutines of the connection; the calling goroutine is the reader.
func (c *conn) serve() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.handle()
	}()
	c.read()
	close(c.gone)
	close(c.calls)
	<-done
	c.nc.Close()
}

// read parses requests until the connection ends, the idle time is over, or a request is not HTTP.
func (c *conn) read() {
	for {
		k := newCall(c)
		if err := c.readCall(k); err != nil {
			if errors.Is(err, errBadHTTP) {
				// The connection ends here.
				_, _ = io.WriteString(c.nc, "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"+
					"connection: close\r\n\r\nInvalid HTTP request received.")
			}
			k.release()
			return
		}
		select {
		case c.calls <- k:
		case <-c.srv.life.ctx.Done():
			k.release()
			return
		}
	}
}

func (c *conn) handle() {
	ended := false
	for k := range c.calls {
		if !ended {
			c.busy.Store(true)
			c.stray(k.path)
			c.srv.serve(k)
			c.idleUntil = time.Now().Add(c.srv.o.KeepAlive)
			c.nc.SetReadDeadline(c.idleUntil)
			k.finish()
			c.busy.Store(false)
			ended = k.broken || k.head.close || c.srv.Dead() != nil
		}
		if ended {
			c.nc.Close()
		}
		k.release()
	}
}

// stray sends the previous answer again, if a fault says so for this path.
func (c *conn) stray(path string) {
	if len(c.last) > 0 {
		if _, is := c.srv.faults.take("stray", path, ""); is {
			_, _ = c.nc.Write(c.last) // the next write notices a disconnected client
		}
	}
	c.last = c.last[:0]
}

// grewOld reports whether the next request came after the idle time, while the server was frozen. After a
// freeze, uvicorn's loop runs timers first, so it closes such a connection without reading.
func (c *conn) grewOld() bool { return !c.idleUntil.IsZero() && time.Now().After(c.idleUntil) }

func (c *conn) readCall(k *call) error {
	if _, err := c.br.Peek(1); err != nil {
		return err
	}
	c.nc.SetReadDeadline(time.Time{})
	if err := c.readHead(k); err != nil {
		return err
	}
	if k.head.expect {
		if _, err := io.WriteString(c.nc, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return err
		}
	}
	if k.head.chunked {
		return c.readChunks(k)
	}
	return c.readLength(k, max(k.head.length, 0))
}

func (c *conn) readLength(k *call, n int) error {
	if n > maxBody-len(k.body) {
		return errBadHTTP
	}
	at := len(k.body)
	k.body = grow(k.body, n)
	_, err := io.ReadFull(c.br, k.body[at:])
	return err
}

// grow lengthens b by n bytes with undefined content.
func grow(b []byte, n int) []byte {
	if need := len(b) + n; need > cap(b) {
		b = append(make([]byte, 0, max(need, 2*cap(b))), b...)
	}
	return b[:len(b)+n]
}

func (c *conn) readChunks(k *call) error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil {
			return errBadHTTP
		}
		if n == 0 {
			return c.skipTrailer()
		}
		if err := c.readLength(k, int(n)); err != nil {
			return err
		}
		if line, err = c.line(); err != nil || len(line) != 0 {
			return cmpErr(err, errBadHTTP)
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (c *conn) skipTrailer() error {
	for {
		if line, err := c.line(); err != nil || len(line) == 0 {
			return err
		}
	}
}

// line reads a line and cuts off its end. The result is valid until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errBadHTTP
	}
	return bytes.TrimRight(line, "\r\n"), err
}
