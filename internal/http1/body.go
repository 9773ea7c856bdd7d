package http1

import (
	"io"
	"time"
)

// body is a request's body of a known length.
type body struct {
	c    *conn
	left int64
	by   time.Time // until when a read may take, zero for no limit
	torn bool      // a read has failed
}

// isLast reports whether the missing rest of the body is so long that no other request can follow on the
// connection.
func (b *body) isLast() bool { return b.left > longestUnread || b.torn && b.left > 0 }

// Read implements [io.Reader]. Bytes that came with the head are taken from the buffer.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	c := b.c
	var n int
	var err error
	if c.in.r < c.in.w {
		n = copy(p, c.in.buf[c.in.r:c.in.w])
		c.in.r += n
	} else if n, err = c.read(p, b.by); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if b.left -= int64(n); b.left == 0 {
		err = io.EOF
	}
	b.torn = b.torn || err != nil && err != io.EOF
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error { return nil }
