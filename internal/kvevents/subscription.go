package kvevents

import (
	"context"
	"time"

	"github.com/pebbe/zmq4"
)

const (
	// After this time of live batches without a pause, the waiting batches are thrown away. The gap is then
	// noticed and replayed.
	lateFor     = 10 * time.Second
	liveBatches = 32 // live batches between two looks at the connection
)

// subscription is the connection that live batches come on, made again whenever it is lost.
type subscription struct {
	sub   *zmq4.Socket // live batches
	news  *zmq4.Socket // libzmq's reports on sub's connection
	taken []message    // live batches off the socket, not judged yet
	// Since when there have been more live batches than a turn takes, zero if there are not.
	late time.Time

	endpoint string
	linked   bool // there was a connection before
	back     backoff
	redialAt time.Time // when to dial the endpoint again, zero while libzmq has it
}

// open makes both sockets, and lets libzmq report on the connection. A report comes before any message of
// the connection.
func (l *subscription) open(in *sockets) (err error) {
	if l.sub, err = in.make(zmq4.SUB); err != nil {
		return err
	}
	at := in.opt.inproc("news")
	if err = l.sub.Monitor(at, zmq4.EVENT_HANDSHAKE_SUCCEEDED|zmq4.EVENT_DISCONNECTED); err != nil {
		return err
	}
	if l.news, err = in.make(zmq4.PAIR); err != nil {
		return err
	}
	return l.news.Connect(at)
}

// dial subscribes at the address of src.
func (l *subscription) dial(in *sockets, src *Source) error {
	l.endpoint = src.Endpoint
	if err := in.tune(l.sub, l.endpoint); err != nil {
		return err
	}
	if err := l.sub.SetSubscribe(src.Topic); err != nil {
		return err
	}
	return l.sub.Connect(l.endpoint)
}

func (l *subscription) close() {
	if l.sub != nil {
		_ = l.sub.Monitor("", 0) // a monitor that outlives its reader can crash libzmq
	}
}

// take takes up to liveBatches of the waiting live batches, in place of the batches that it took last. It
// reports whether no more are waiting. Looking for news costs as much as taking a batch, so one look for
// several batches is worth it.
func (l *subscription) take(in *sockets) (last bool, err error) {
	l.taken = l.taken[:0]
	now := time.Now()
	for n, size := 0, 0; n < liveBatches && size < largeBatch; n++ {
		frames, err := in.receive(l.sub)
		if frames == nil || err != nil {
			return true, err
		}
		if m, ok := readLive(frames); ok {
			in.opt.heardOf(frames[0])
			m.received = now
			l.taken = append(l.taken, m)
			size += len(m.payload)
		}
	}
	return false, nil
}

// keepUp throws away the waiting live batches when they have come without a pause for too long. An engine
// that publishes faster than we can take would fill our memory. The next batch shows the gap.
func (l *subscription) keepUp(ctx context.Context, now time.Time, in *sockets) error {
	if l.late.IsZero() {
		l.late = now
	}
	if now.Sub(l.late) < in.opt.late {
		return nil
	}
	l.late = time.Time{}
	return l.skip(ctx, in)
}

// skip throws away all live batches that have arrived.
func (l *subscription) skip(ctx context.Context, in *sockets) error {
	for ctx.Err() == nil {
		frames, err := in.receive(l.sub)
		if frames == nil || err != nil {
			return err
		}
	}
	return nil
}

// readLive takes live batches, some at a time. Before it applies them, it reads the news of the connection.
// libzmq reports a connection before it hands over batches of the connection. So when the batches are
// applied, the connection on which they came is known.
func (s *stream) readLive(ctx context.Context) error {
	for range maxPerTurn / liveBatches {
		last, err := s.live.take(&s.sockets)
		if err != nil {
			return err
		}
		if err := s.readNews(ctx); err != nil {
			return err
		}
		for i := 0; i < len(s.live.taken) && ctx.Err() == nil; i++ {
			s.track.live(s.live.taken[i])
		}
		clear(s.live.taken) // a quiet stream keeps no payloads
		if last || ctx.Err() != nil {
			s.live.late = time.Time{}
			return nil
		}
	}
	return s.live.keepUp(ctx, time.Now(), &s.sockets)
}

// connected throws away the remaining batches of the earlier connection, which may be of another engine. The
// replay that follows has all batches that still matter.
func (s *stream) connected(ctx context.Context) error {
	if s.live.linked && s.src.Replay != "" {
		s.live.taken = s.live.taken[:0]
		if err := s.live.skip(ctx, &s.sockets); err != nil {
			return err
		}
	}
	if s.live.linked {
		s.stats.Reconnects++
	}
	s.live.linked = true
	s.live.back.connected(time.Now())
	s.track.connected(time.Now())
	return nil
}
