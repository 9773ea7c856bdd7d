package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Response is an answer whose body is read with Next or ReadAll, by one goroutine at a time. It must be
// closed.
type Response struct {
	Status        int
	Header        Header
	ContentLength int64     // -1 when not known beforehand
	Sent          time.Time // when the request had been written

	client *Client
	conn   *conn           // nil once given back
	ctx    context.Context // of the request, nil when it cannot end; kept for telling why a read failed
	stop   func() bool     // ends the watch over ctx, nil without one

	body   bodyReader
	naming naming
}

// bodyReader is how far the body has been read.
type bodyReader struct {
	framing framing
	left    int64  // of a body with a known length
	chunks  chunks // of a chunked body
	done    bool   // the end of the body has been seen
	reuse   bool   // the connection can carry another request once done
	err     error  // what Next says from now on
}

// framing is how a body tells its end.
type framing uint8

const (
	byLength framing = iota
	byChunks
	byClose
)

const maxInterim = 8 // 1xx answers before the real one

// readHead reads up to the end of the head, past interim answers. early says that the request was not sent to
// its end.
func (r *Response) readHead(limit int, method string, early bool) *Error {
	silent := len(r.conn.rest()) == 0
	for range maxInterim {
		h, err := r.nextHead(limit, &silent)
		if err != nil {
			return &Error{Phase: Head, Sent: true, Err: err, silent: silent}
		}
		if h.status >= 200 {
			r.begin(h, method, early)
			return nil
		}
		if early || h.status == 101 {
			break
		}
	}
	return &Error{
		Phase: Head, Sent: true, Err: ProtocolError("interim answers in a wrong place"),
	}
}

// nextHead reads one head and leaves the bytes behind it in the buffer.
func (r *Response) nextHead(limit int, silent *bool) (head, error) {
	c, seen := r.conn, 0
	for {
		b := c.rest()
		if end := bytes.Index(b[max(0, seen-3):], []byte("\r\n\r\n")); end >= 0 {
			end += max(0, seen-3) + len("\r\n\r\n")
			if end > limit {
				return head{}, errHeadTooLarge
			}
			c.r += end
			return parseHead(b[:end])
		}
		if seen = len(b); seen >= limit {
			return head{}, errHeadTooLarge
		}
		if hasBareLF(b) {
			return head{}, errBareLF
		}
		c.slide()
		if err := c.fill(); err != nil {
			return head{}, cutShort(err, seen > 0)
		}
		*silent = false
	}
}

// hasBareLF tells a head that will never have the end we wait for.
func hasBareLF(b []byte) bool {
	for i, ch := range b {
		if ch == '\n' && (i == 0 || b[i-1] != '\r') {
			return true
		}
	}
	return false
}

// slide moves the bytes not used yet to the front of the buffer, so that there is room behind them.
func (c *conn) slide() {
	if c.r > 0 {
		c.w = copy(c.buf[:], c.buf[c.r:c.w])
		c.r = 0
	}
}

// cutShort names an end in the middle of something.
func cutShort(err error, begun bool) error {
	if err == io.EOF {
		if begun {
			return errCut
		}
		return io.ErrUnexpectedEOF
	}
	return err
}

// begin takes over from a head what the body needs.
func (r *Response) begin(h head, method string, early bool) {
	r.Status = h.status
	r.Header = h.fields
	r.ContentLength = h.length
	// vLLM's uvicorn promises to keep the connection, and hangs up.
	r.body.reuse = !early && !h.close && !h.oldHTTP && h.status != http.StatusInternalServerError
	switch {
	case bodyless(method, h.status):
		r.body.done = true
		r.body.reuse = r.body.reuse && !h.chunked
	case h.chunked:
		r.body.framing = byChunks
	case h.length >= 0:
		r.body.left, r.body.done = h.length, h.length == 0
	default:
		r.body.framing, r.body.reuse = byClose, false
	}
}

// Next returns body bytes: the ones that have arrived, else it waits for the first. It reads from the socket
// at most once if that brings any body. The slice is valid until the next call of a method of r, and may be
// written to. io.EOF is the end; every other error is an [*Error] and stays.
func (r *Response) Next() ([]byte, error) {
	for {
		if b, ready := r.ready(); ready {
			return b, r.body.err
		}
		if err := r.conn.fill(); err != nil {
			r.filled(err)
		}
	}
}

// NextWithin is Next that waits for d, or up to an eighth longer. If no byte has arrived by then it returns
// no bytes and no error, and the answer continues.
func (r *Response) NextWithin(d time.Duration) ([]byte, error) {
	if b, ready := r.ready(); ready {
		return b, r.body.err
	}
	c, patience := r.conn, r.conn.patience
	c.setPatience(d)
	defer func() {
		if r.conn != nil { // giving the connection back takes its deadline away
			c.setPatience(patience)
		}
	}()
	for {
		err := c.fill()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		if err != nil {
			r.filled(err)
		}
		if b, ready := r.ready(); ready {
			return b, r.body.err
		}
	}
}

// ready returns the bytes that have arrived, without waiting, or the error r.err. It reports false where the
// socket has to be read.
func (r *Response) ready() ([]byte, bool) {
	if r.body.err == nil {
		b := r.take()
		if r.naming.id != "" && (len(b) > 0 || r.body.done) && !r.checkBody(b) {
			return nil, true
		}
		if len(b) > 0 {
			return b, true
		}
	}
	if r.body.err == nil && r.body.done {
		r.fail(io.EOF)
	}
	return nil, r.body.err != nil
}

// filled ends the body after a read that failed.
func (r *Response) filled(err error) {
	if err == io.EOF && r.body.framing == byClose {
		r.body.done = true
		return
	}
	r.fail(err)
}

// fail ends the response: io.EOF well, anything else badly.
func (r *Response) fail(err error) {
	if err != io.EOF || !r.body.done {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if r.ctx != nil && r.ctx.Err() != nil {
			err = r.ctx.Err()
		}
		err = &Error{Phase: Body, Sent: true, Err: err}
	}
	r.release(err == io.EOF)
	r.body.err = err
}

// take returns the body bytes in the buffer, without reading. It sets done at the end of the body, and err
// when that is malformed.
func (r *Response) take() []byte {
	if r.body.done || r.conn == nil {
		return nil
	}
	c := r.conn
	b := c.rest()
	if len(b) == 0 {
		return nil
	}
	switch r.body.framing {
	case byLength:
		b = b[:min(int64(len(b)), r.body.left)]
		c.r += len(b)
		r.body.left -= int64(len(b))
		r.body.done = r.body.left == 0
	case byChunks:
		b = r.takeChunks(b)
	case byClose:
		c.r += len(b)
	}
	return b
}

func (r *Response) takeChunks(b []byte) []byte {
	n, used, err := r.body.chunks.decode(b)
	r.conn.r += used
	r.body.done = r.body.chunks.state == chunksDone
	if err != nil && n > 0 {
		return b[:n] // the same error again when Next comes back
	}
	if err != nil {
		r.fail(err)
	}
	return b[:n]
}

// Delimited reports whether the answer itself says where it ends. One that does not ends with its connection,
// and looks the same when it was cut.
func (r *Response) Delimited() bool { return r.body.framing != byClose }

// SetIdle lets Next fail with os.ErrDeadlineExceeded when nothing arrives for d, or up to an eighth longer;
// 0 waits as long as the request's context.
func (r *Response) SetIdle(d time.Duration) {
	if r.conn != nil {
		r.conn.setPatience(d)
	}
}

// ReadAll returns the rest of the body in a slice of the caller's, or ErrTooLarge when it is longer than
// limit bytes.
func (r *Response) ReadAll(limit int64) ([]byte, error) { return r.AppendAll(nil, limit) }

// AppendAll is ReadAll that appends to dst. What dst had counts for nothing in limit.
func (r *Response) AppendAll(dst []byte, limit int64) ([]byte, error) {
	if r.body.framing == byLength && r.body.left > limit {
		return dst, r.tooLarge()
	}
	if r.body.framing == byLength && r.body.left > 0 && cap(dst)-len(dst) < int(r.body.left) {
		dst = append(make([]byte, 0, len(dst)+int(r.body.left)), dst...)
	}
	start := len(dst)
	for {
		b, err := r.Next()
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if int64(len(dst)-start+len(b)) > limit {
			return dst, r.tooLarge()
		}
		dst = append(dst, b...)
	}
}

func (r *Response) tooLarge() error {
	r.fail(ErrTooLarge)
	return r.body.err
}

var errResponseClosed = errors.New("response is closed")

// Close gives the connection back when the body has been read, or lies in the buffer, to its end, and closes
// it otherwise.
func (r *Response) Close() {
	if r.conn == nil {
		return
	}
	for len(r.take()) > 0 {
	}
	r.release(r.body.done)
	r.body.err = errResponseClosed
}
