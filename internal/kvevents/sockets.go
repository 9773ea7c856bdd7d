package kvevents

import (
	"syscall"
	"time"

	"github.com/pebbe/zmq4"
)

const (
	// Bytes, a million blocks of 16 tokens; libzmq closes the connection on a larger one.
	maxMessage    = 64 << 20
	handshakeTime = 5 * time.Second // until a peer that does not speak ZMTP is given up
	maxReconnect  = 5 * time.Second // between two attempts to dial
)

// sockets makes, sets and reads the sockets of a stream.
type sockets struct {
	z      *zmq4.Context
	opt    *Options
	opened []*zmq4.Socket  // to close
	frames [][]byte        // of the message that was received last
	family map[string]bool // endpoints that were dialled before, and whether by IPv6
}

// make makes a socket that close closes.
func (s *sockets) make(t zmq4.Type) (*zmq4.Socket, error) {
	soc, err := s.z.NewSocket(t)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, soc)
	return soc, soc.SetLinger(0)
}

func (s *sockets) close() {
	for _, soc := range s.opened {
		soc.Close()
	}
}

// tune sets the options that both kinds of connection share. The queues of both have no bound. libzmq stops
// reading a connection whose queue is full, so its heartbeats go unread too. Where libzmq then dials again,
// it aborts the process (libzmq #3937, in all versions up to 4.3.5). [subscription.keepUp] bounds the queue
// of live batches, and the end of a replay bounds the other queue.
func (s *sockets) tune(soc *zmq4.Socket, endpoint string) error {
	set := []error{
		soc.SetRcvhwm(0),
		soc.SetMaxmsgsize(maxMessage),
		soc.SetReconnectIvl(s.opt.Reconnect),
		soc.SetReconnectIvlMax(max(maxReconnect, s.opt.Reconnect)),
		soc.SetConnectTimeout(handshakeTime),
		soc.SetHandshakeIvl(handshakeTime),
		soc.SetIpv6(s.byIPv6(endpoint)),
	}
	if s.opt.Heartbeat > 0 {
		set = append(set, soc.SetHeartbeatIvl(s.opt.Heartbeat), soc.SetHeartbeatTimeout(3*s.opt.Heartbeat),
			soc.SetHeartbeatTtl(farTimeout(s.opt.Heartbeat)))
	}
	return first(set)
}

// farTimeout is the time of our silence after which the engine may drop the connection. Otherwise a router
// on a machine that is gone would fill a queue in the engine. ZMTP counts the time in tenths of a second;
// zero would mean never.
func farTimeout(heartbeat time.Duration) time.Duration {
	return max(5*heartbeat, 100*time.Millisecond)
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// receive returns the frames of a message, nil if there is none. They hold until the next call; their bytes
// are not used again.
func (s *sockets) receive(soc *zmq4.Socket) ([][]byte, error) {
	s.frames = s.frames[:0]
	for {
		frame, err := soc.RecvBytes(zmq4.DONTWAIT)
		if err != nil {
			return nil, unlessEmpty(err)
		}
		if len(s.frames) < 5 { // one more than any message of ours has: enough to refuse it
			s.frames = append(s.frames, frame)
		}
		more, err := soc.GetRcvmore()
		if err != nil || !more {
			return s.frames, err
		}
	}
}

func empty(err error) bool { return err != nil && zmq4.AsErrno(err) == zmq4.Errno(syscall.EAGAIN) }

func unlessEmpty(err error) error {
	if empty(err) {
		return nil
	}
	return err
}
