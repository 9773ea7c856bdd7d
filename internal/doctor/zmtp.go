package doctor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// This file is as much of ZMTP 3.1 (rfc.zeromq.org/spec/37) as it takes to subscribe and to ask for a replay.
// libzmq hides what an examination is after: whether nobody listens, something else than ZeroMQ does, or a
// socket of another kind.
//
//	greeting  ff 00*7 01 7f | 03 01 | "NULL" 00*16 | 00 | 00*31
//	frame     flags (1 more, 2 long, 4 command), size (1 byte, or 8 big-endian), body
//	command   length of the name, name, data; READY's data are properties: length (1), name, length (4), value

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxFrame = 256 << 20 // bytes; a larger one ends the connection
)

// peer is a connection to a ZeroMQ socket. One goroutine reads, one may write.
type peer struct {
	nc     net.Conn
	r      *bufio.Reader
	kind   string // of the other side's socket: PUB, ROUTER, ...
	pongs  chan struct{}
	unhook func() bool // parts with the context that closes the connection
}

// layer says how far a connection got before it failed.
type layer uint8

const (
	atAddress layer = iota + 1 // it is no address that can be dialled
	atTCP                      // nobody there, or no way there
	atZMTP                     // somebody there, who does not speak ZeroMQ
	atSocket                   // a ZeroMQ socket of the wrong kind
)

type linkError struct {
	layer layer
	kind  string // of the socket found, atSocket
	err   error
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// dialPeer connects to endpoint as a socket of kind me, and wants one of kind you there. The connection
// closes with ctx, which may end before within.
func dialPeer(ctx context.Context, endpoint, me, you string, within time.Duration) (*peer, *linkError) {
	addr, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return nil, &linkError{layer: atAddress, err: fmt.Errorf("%q is no tcp:// address", endpoint)}
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, &linkError{layer: atAddress, err: err}
	}
	dialing, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(dialing, "tcp", addr)
	if err != nil {
		return nil, &linkError{layer: atTCP, err: err}
	}
	p := &peer{nc: nc, r: bufio.NewReaderSize(nc, 64<<10), pongs: make(chan struct{}, 1)}
	p.unhook = context.AfterFunc(ctx, func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(within)) // a fresh connection takes it
	if err := p.shake(me); err != nil {
		p.close()
		return nil, &linkError{layer: atZMTP, err: err}
	}
	if p.kind != you && p.kind != "X"+you {
		p.close()
		return nil,
			&linkError{layer: atSocket, kind: p.kind, err: fmt.Errorf("a %s socket is there, not %s", p.kind, you)}
	}
	_ = nc.SetDeadline(time.Time{})
	return p, nil
}

func (p *peer) close() {
	p.unhook()
	p.nc.Close()
}

// shake exchanges greetings and READY.
func (p *peer) shake(me string) error {
	if _, err := p.nc.Write(greeting()); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(p.r, theirs[:]); err != nil {
		return fmt.Errorf("no ZeroMQ greeting: %w", err)
	}
	switch {
	case theirs[0] != 0xff || theirs[9] != 0x7f:
		return fmt.Errorf("no ZeroMQ greeting but %q", theirs[:16])
	case theirs[10] < 3:
		return fmt.Errorf("ZeroMQ protocol %d, which is too old", theirs[10])
	}
	if mechanism := strings.TrimRight(string(theirs[12:32]), "\x00"); mechanism != "NULL" {
		return fmt.Errorf("it wants the security mechanism %s", mechanism)
	}
	if err := p.write(flagCommand, ready(me)); err != nil {
		return err
	}
	flags, body, err := p.frame()
	if err != nil {
		return err
	}
	name, data := command(body)
	if flags&flagCommand == 0 || name != "READY" {
		return fmt.Errorf("it does not get ready but says %q", name)
	}
	p.kind = property(data, "Socket-Type")
	return nil
}

func greeting() []byte {
	b := make([]byte, 64)
	copy(b, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01") // the signature, and version 3.1
	copy(b[12:], "NULL")
	return b
}

func ready(kind string) []byte {
	b := []byte("\x05READY\x0bSocket-Type")
	return append(binary.BigEndian.AppendUint32(b, uint32(len(kind))), kind...)
}

func command(body []byte) (name string, data []byte) {
	if len(body) == 0 || len(body) <= int(body[0]) {
		return "", nil
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:]
}

// property finds a value among READY's, "" if it is not there.
func property(data []byte, want string) string {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return ""
		}
		name, size := string(data[1:n]), int64(binary.BigEndian.Uint32(data[n:]))
		data = data[n+4:]
		if int64(len(data)) < size {
			return ""
		}
		if strings.EqualFold(name, want) {
			return string(data[:size])
		}
		data = data[size:]
	}
	return ""
}

func (p *peer) write(flags byte, body []byte) error {
	var b []byte
	if len(body) > 255 {
		b = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	} else {
		b = []byte{flags, byte(len(body))}
	}
	_, err := p.nc.Write(append(b, body...))
	return err
}

func (p *peer) frame() (flags byte, body []byte, err error) {
	if flags, err = p.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err = io.ReadFull(p.r, b[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := p.r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(b)
	}
	if size > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	body, err = readSome(p.r, int(size))
	return flags, body, err
}

// readSome reads n bytes, without believing n before they come.
func readSome(r io.Reader, n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		old := len(b)
		b = append(b, make([]byte, min(n-old, 1<<20))...)
		if _, err := io.ReadFull(r, b[old:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

var errFrames = errors.New("a message of more frames than any of vLLM's")

// message returns the frames of the next message; commands on the way are dealt with.
func (p *peer) message() ([][]byte, error) {
	var frames [][]byte
	for {
		flags, body, err := p.frame()
		switch {
		case err != nil:
			return nil, err
		case flags&flagCommand != 0:
			p.obey(body)
			continue
		}
		if frames = append(frames, body); flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) > 8 {
			return nil, errFrames
		}
	}
}

// obey notes a pong. A ping of theirs is left unanswered: connections here are short.
func (p *peer) obey(body []byte) {
	if name, _ := command(body); name != "PONG" {
		return
	}
	select {
	case p.pongs <- struct{}{}:
	default:
	}
}

// subscribe wants every topic.
func (p *peer) subscribe() error { return p.write(0, []byte{1}) }

// ping asks for a pong, which whoever reads messages will note. A time to live of 0 leaves the other side's
// own time-outs alone.
func (p *peer) ping() error { return p.write(flagCommand, []byte("\x04PING\x00\x00")) }

// send sends one message.
func (p *peer) send(frames ...[]byte) error {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := p.write(flags, f); err != nil {
			return err
		}
	}
	return nil
}
