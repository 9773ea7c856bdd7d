package engine

import (
	"io"
	"net"
	"time"
)

// replay is a connection that returns its pieces, one for each read.
type replay struct {
	net.Conn
	pieces [][]byte
}

func (r *replay) Read(b []byte) (int, error) {
	for len(r.pieces) > 0 && len(r.pieces[0]) == 0 {
		r.pieces = r.pieces[1:]
	}
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.pieces[0])
	r.pieces[0] = r.pieces[0][n:]
	return n, nil
}

func (r *replay) Write(b []byte) (int, error)      { return len(b), nil }
func (r *replay) Close() error                     { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
