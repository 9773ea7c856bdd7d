package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// layer says how far a connection to an event stream got before it failed.
type layer uint8

const (
	atAddress layer = iota + 1 // it is no address that can be dialled
	atTCP                      // refused or unreachable
	atZMTP                     // something listens there that does not speak ZeroMQ
)

type linkError struct {
	layer layer
	err   error
}

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// listens checks whether a ZeroMQ socket listens at endpoint. libzmq itself would dial again and again, and
// not say what it met: a closed port, a firewall or an HTTP server.
func listens(ctx context.Context, endpoint string) *linkError {
	network := "tcp"
	addr, tcp := strings.CutPrefix(endpoint, "tcp://")
	if path, ipc := strings.CutPrefix(endpoint, "ipc://"); ipc {
		network, addr = "unix", path
	} else if !tcp {
		return &linkError{atAddress, fmt.Errorf("%q is neither a tcp:// nor an ipc:// address", endpoint)}
	} else if _, _, err := net.SplitHostPort(addr); err != nil {
		return &linkError{atAddress, err}
	}
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return &linkError{atTCP, err}
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_ = nc.SetDeadline(time.Now().Add(linkTime)) // a fresh connection takes it
	// The side that listens greets at once: ff, eight bytes, 7f (rfc.zeromq.org/spec/23).
	var greeting [10]byte
	n, err := io.ReadFull(nc, greeting[:])
	switch {
	case n > 0 && greeting[0] != 0xff, err == nil && greeting[9] != 0x7f:
		return &linkError{atZMTP, fmt.Errorf("no ZeroMQ greeting but %q", greeting[:n])}
	case err != nil:
		return &linkError{atZMTP, fmt.Errorf("no ZeroMQ greeting: %w", err)}
	}
	return nil
}
