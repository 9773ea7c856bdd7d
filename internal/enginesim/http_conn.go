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

// A small HTTP/1.1 server: net/http would take about as much of the benchmark's two cores as the router under
// test, and hides what the faults must control (half an answer, a cut without a terminator, a refused
// connection).
//
// Each connection has two goroutines. The reader parses one request ahead, so that it notices at once when
// the client leaves; the handler answers the requests in order.

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
	gone  chan struct{} // closed when the client has left
	busy  atomic.Bool   // a request is being handled
}

// call is one request and its answer. It belongs to the handler once it has been sent there.
type call struct {
	c      *conn
	method []byte
	path   string
	query  string
	head   header
	body   []byte
	out    []byte // answer, not yet written
	part   []byte // scratch for one event or body
	events int    // SSE events written so far
	cut    int    // cut the connection after this many events, 0 never
	begun  bool   // the head of a streamed answer is in out or gone
	broken bool   // the connection is of no more use
	silent bool   // at the cut, say nothing more instead of closing
	fails  bool   // at the cut, say that the engine has failed
}

// header holds the fields that mean something to the server.
type header struct {
	requestID, orca, rank, session, priority, key string
	length                                        int // -1 none
	chunked, close, expect, old                   bool
}

var callPool = sync.Pool{New: func() any { return new(call) }}

func newCall(c *conn) *call {
	k := callPool.Get().(*call)
	*k = call{c: c, method: k.method[:0], body: k.body[:0], out: k.out[:0], part: k.part[:0]}
	return k
}

// release gives the buffers back, except those that one long prompt has grown.
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

// read parses requests until the connection ends, its idle time is over or a request is no HTTP.
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
		case <-c.srv.ctx.Done():
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
			c.srv.serve(k)
			c.nc.SetReadDeadline(time.Now().Add(c.srv.o.KeepAlive))
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

// grow lengthens b by n bytes of any content.
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

// line reads up to a line feed, which it cuts off. The result is valid until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errBadHTTP
	}
	return bytes.TrimRight(line, "\r\n"), err
}

func (c *conn) readHead(k *call) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	if err := k.requestLine(line); err != nil {
		return err
	}
	k.head.length = -1
	for total := len(line); ; total += len(line) {
		if line, err = c.line(); err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if err := k.head.field(line); err != nil || total > maxHead {
			return cmpErr(err, errBadHTTP)
		}
	}
}

func (k *call) requestLine(line []byte) error {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	target, proto, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || len(target) == 0 || target[0] != '/' || !bytes.HasPrefix(proto, []byte("HTTP/1.")) {
		return errBadHTTP
	}
	k.method = append(k.method, method...)
	k.head.old = string(proto) == "HTTP/1.0"
	k.head.close = k.head.old
	path, query, _ := bytes.Cut(target, []byte("?"))
	k.path, k.query = k.c.srv.pathName(path), string(query)
	return nil
}

// field keeps one header line if it matters.
func (h *header) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return errBadHTTP
	}
	value = bytes.TrimSpace(value)
	switch {
	case is(name, "content-length"):
		n, err := strconv.ParseUint(string(value), 10, 31)
		h.length = int(n)
		if err != nil {
			return errBadHTTP
		}
	case is(name, "transfer-encoding"):
		h.chunked = is(value, "chunked")
	case is(name, "connection"):
		h.close = h.close && !is(value, "keep-alive") || is(value, "close")
	case is(name, "expect"):
		h.expect = is(value, "100-continue")
	case is(name, "x-request-id"):
		h.requestID = string(value)
	case is(name, "endpoint-load-metrics-format"):
		h.orca = string(value)
	case is(name, "x-data-parallel-rank"):
		h.rank = string(value)
	case is(name, "x-session-id"):
		h.session = string(value)
	case is(name, "authorization"):
		h.key = string(value)
	case is(name, "x-vllm-priority"):
		h.priority = string(value)
	}
	return nil
}

// is compares with a lower-case ASCII word, without regard to case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if c-'A' < 26 {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// respond answers with a whole body. It is written by finish, after the reader's idle deadline has been set.
func (k *call) respond(status int, contentType string, body []byte) {
	k.respondWith(status, contentType, body, "", "")
}

// respondWith is respond with one more header in the place where uvicorn writes it.
func (k *call) respondWith(status int, contentType string, body []byte, name, value string) {
	k.out = appendStatus(k.out[:0], status)
	if name != "" {
		k.out = appendField(k.out, name, value)
	}
	k.out = append(k.out, "content-length: "...)
	k.out = append(appendInt(k.out, len(body)), "\r\n"...)
	k.out = k.appendCommon(k.out, contentType)
	k.out = append(append(k.out, "\r\n"...), body...)
	k.begun = false
}

func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(appendInt(dst, status), ' ')
	dst = append(dst, statusText(status)...)
	return append(dst, "\r\nserver: uvicorn\r\n"...)
}

func statusText(status int) string {
	switch status {
	case 200:
		return "OK"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 429:
		return "Too Many Requests"
	case 500:
		return "Internal Server Error"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	}
	return "Status"
}

func appendField(dst []byte, name, value string) []byte {
	return append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
}

// appendCommon writes what every answer carries.
func (k *call) appendCommon(dst []byte, contentType string) []byte {
	if contentType != "" {
		dst = appendField(dst, "content-type", contentType)
	}
	dst = append(dst, "vary: Origin\r\n"...)
	if k.c.srv.o.NoRequestIDs {
		return dst
	}
	dst = append(dst, "x-request-id: "...)
	if k.head.requestID != "" {
		dst = append(dst, k.head.requestID...)
	} else {
		dst = appendHex(appendHex(dst, randomWord(), 16), randomWord(), 16)
	}
	return append(dst, "\r\n"...)
}

// stream begins an event stream.
func (k *call) stream() {
	k.begun = true
	k.out = k.appendCommon(appendStatus(k.out[:0], 200), "text/event-stream; charset=utf-8")
	if k.head.old {
		k.head.close = true
		k.out = append(k.out, "\r\n"...)
		return
	}
	k.out = append(k.out, "transfer-encoding: chunked\r\n\r\n"...)
}

// event adds one server-sent event, whole with its blank line, as a chunk of its own.
func (k *call) event(b []byte) {
	if k.broken {
		return
	}
	if k.head.old {
		k.out = append(k.out, b...)
	} else {
		k.out = strconv.AppendUint(k.out, uint64(len(b)), 16)
		k.out = append(append(append(k.out, "\r\n"...), b...), "\r\n"...)
	}
	if k.events++; k.cut > 0 && k.events >= k.cut {
		k.cut = 0
		if k.fails {
			k.event(append(appendSpacedError([]byte("data: "), internalError), "\n\n"...))
			k.event([]byte(done))
		}
		k.flush()
		if k.silent {
			k.hang()
		}
		k.broken = true
	}
}

// flush writes what has been gathered. After an error the call is broken.
func (k *call) flush() {
	if len(k.out) == 0 || k.broken {
		return
	}
	k.c.srv.thaw(k.c.gone)
	if _, err := k.c.nc.Write(k.out); err != nil {
		k.broken = true
	}
	k.out = k.out[:0]
}

// hang waits until the client has had enough.
func (k *call) hang() {
	select {
	case <-k.c.gone:
	case <-k.c.srv.ctx.Done():
	}
}

// finish ends the answer and writes the rest of it.
func (k *call) finish() {
	if k.begun && !k.head.old && !k.broken {
		k.out = append(k.out, "0\r\n\r\n"...)
	}
	k.flush()
}
