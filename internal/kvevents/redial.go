package kvevents

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pebbe/zmq4"
)

// backoff says how long to wait before dialling again. libzmq's own back-off starts again at every TCP
// connection. So it does not slow down dialling an address that accepts connections and drops them: a proxy
// without an engine behind it, or an engine that crashes over and over.
type backoff struct {
	base  time.Duration // first wait
	rnd   *rand.Rand
	since time.Time // of the connection that stands, zero if none does
	short int       // connections in a row that failed, or did not last
}

func (b *backoff) connected(now time.Time) { b.since = now }

// lost returns how long to wait, now that the connection is gone. The wait is 0 if the connection had
// lasted. Otherwise it doubles each time, up to maxReconnect. A random part of up to half the wait is added,
// so that the followers of a fleet do not dial all at once.
func (b *backoff) lost(now time.Time) time.Duration {
	lasted := !b.since.IsZero() && now.Sub(b.since) >= maxReconnect
	b.since = time.Time{}
	if lasted {
		b.short = 0
		return 0
	}
	wait := min(b.base<<min(b.short, 20), max(maxReconnect, b.base))
	b.short++
	return wait + time.Duration(b.rnd.Int64N(int64(wait/2)+1))
}

// rest disconnects libzmq, which would dial the address again at once, until redial.
func (l *subscription) rest(now time.Time) error {
	wait := l.back.lost(now)
	if wait == 0 {
		return nil
	}
	l.redialAt = now.Add(wait)
	return l.sub.Disconnect(l.endpoint)
}

// redial dials again when it is time. News that came meanwhile is of connections that we ended.
func (s *stream) redial(ctx context.Context, now time.Time) error {
	if !due(s.live.redialAt, now) {
		return nil
	}
	if err := s.readNews(ctx); err != nil {
		return err
	}
	s.live.redialAt = time.Time{}
	return s.live.sub.Connect(s.live.endpoint)
}

// readNews reads libzmq's reports on the connection. After several changes at once, only the last state
// decides whether to rest.
func (s *stream) readNews(ctx context.Context) error {
	lost := false
	for {
		what, _, _, err := s.live.news.RecvEvent(zmq4.DONTWAIT)
		switch {
		case empty(err) && lost:
			return s.live.rest(time.Now())
		case empty(err):
			return nil
		case err != nil:
			return err
		case !s.live.redialAt.IsZero():
		case what == zmq4.EVENT_DISCONNECTED:
			lost = true
			s.track.disconnected(time.Now())
		case what == zmq4.EVENT_HANDSHAKE_SUCCEEDED:
			lost = false
			if err := s.connected(ctx); err != nil {
				return err
			}
		}
	}
}
