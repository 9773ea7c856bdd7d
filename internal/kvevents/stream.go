package kvevents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"

	"tandem/internal/kv"
)

const (
	// Bytes, a million blocks of 16 tokens; libzmq closes the connection on a larger one.
	maxMessage = 64 << 20
	// Of live batches without an end, after which those that wait are thrown away, noticed, and replayed.
	lateFor       = 10 * time.Second
	handshakeTime = 5 * time.Second  // until a peer that does not speak ZMTP is given up
	maxReconnect  = 5 * time.Second  // between two attempts to dial
	maxWait       = 10 * time.Second // longest sleep of an idle stream
	maxPerTurn    = 256              // messages of one socket in one turn
	liveBatches   = 32               // live batches between two looks at the connection
	largeBatch    = 1 << 20          // bytes of payload from which on the decoded batch is not kept for reuse
)

// stream is one Run of a follower: its sockets, and the tracker that says what to do with what they bring.
// Owned by the goroutine in Run.
type stream struct {
	src   Source
	sink  Sink
	opt   Options
	z     *zmq4.Context
	track *tracker
	stats Stats
	batch kv.Batch

	sub      *zmq4.Socket // live batches
	news     *zmq4.Socket // what libzmq says of sub's connection
	wake     *zmq4.Socket // readable when somebody has rung
	waker    *waker       // its far end
	dealer   *zmq4.Socket // the replay under way, or nil
	poller   *zmq4.Poller
	frames   [][]byte
	taken    []message      // live batches off the socket, not judged yet
	opened   []*zmq4.Socket // to close, dealer excepted
	unwatch  func()         // parts with ctx
	wanted   bool           // a replay is to begin as soon as there is a place
	place    place          // for it
	yieldAt  time.Time      // when the place goes if nothing has come by then, zero if something has
	answered bool           // something of it has come
	from     uint64         // its first batch
	linked   bool           // there was a connection before
	// Since when there have been more live batches than a turn takes, zero if there are not.
	late time.Time

	family   map[string]bool // endpoints that were dialled before, and whether by IPv6
	back     backoff
	redialAt time.Time // when to dial sub's address again, zero while libzmq has it
}

// open makes all sockets but the replay's, and dials.
func (s *stream) open(ctx context.Context) (err error) {
	if s.sub, err = s.socket(zmq4.SUB); err != nil {
		return err
	}
	if err = s.listen(); err != nil {
		return err
	}
	if err = s.watch(ctx); err != nil {
		return err
	}
	s.poll()
	return s.dial()
}

// socket makes a socket that close closes.
func (s *stream) socket(t zmq4.Type) (*zmq4.Socket, error) {
	soc, err := s.z.NewSocket(t)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, soc)
	return soc, soc.SetLinger(0)
}

// dial connects sub and looks whether the replay address could be dialled too.
func (s *stream) dial() error {
	if err := s.tune(s.sub, s.src.Endpoint); err != nil {
		return err
	}
	if err := s.sub.SetSubscribe(s.src.Topic); err != nil {
		return err
	}
	if err := s.sub.Connect(s.src.Endpoint); err != nil {
		return err
	}
	if s.src.Replay == "" {
		return nil
	}
	probe, err := s.dialReplay()
	if probe != nil {
		probe.Close()
	}
	return err
}

// tune sets what both kinds of connection share. Their queues have no bound: libzmq stops reading a
// connection whose queue is full, so that its heartbeats go unread too, and where it then dials again it
// aborts the process (libzmq #3937, in all versions up to 4.3.5). What bounds them is [stream.keepUp], and
// that a replay has an end.
func (s *stream) tune(soc *zmq4.Socket, endpoint string) error {
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

// farTimeout is the silence of ours after which the engine may drop the connection: a router whose machine is
// gone must not fill a queue over there. ZMTP counts it in tenths of a second; zero would mean never.
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

// listen lets libzmq tell of the connection. It does so before it hands over anything that came on it.
func (s *stream) listen() (err error) {
	at := s.opt.Context.inproc("news")
	if err = s.sub.Monitor(at, zmq4.EVENT_HANDSHAKE_SUCCEEDED|zmq4.EVENT_DISCONNECTED); err != nil {
		return err
	}
	if s.news, err = s.socket(zmq4.PAIR); err != nil {
		return err
	}
	return s.news.Connect(at)
}

// watch makes the end of ctx, and whatever else rings the waker, something that can be polled.
func (s *stream) watch(ctx context.Context) (err error) {
	at := s.opt.Context.inproc("wake")
	if s.wake, err = s.socket(zmq4.PAIR); err != nil {
		return err
	}
	if err = s.wake.Bind(at); err != nil {
		return err
	}
	far, err := s.socket(zmq4.PAIR)
	if err != nil {
		return err
	}
	s.waker = &waker{far: far}
	s.place.ring = s.waker.ring
	if err = far.Connect(at); err != nil {
		return err
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		s.waker.ring()
	})
	s.unwatch = func() {
		if !stop() {
			<-done
		}
	}
	return nil
}

// waker wakes a stream that sleeps in libzmq. Its socket passes between those who ring, under mu.
type waker struct {
	mu  sync.Mutex // guards far
	far *zmq4.Socket
}

func (b *waker) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.far != nil {
		_, _ = b.far.SendBytes(nil, zmq4.DONTWAIT) // full: it is awake
	}
}

// mute makes ringing do nothing, so that the socket may be closed.
func (b *waker) mute() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.far = nil
}

func (s *stream) close() {
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.waker != nil {
		s.waker.mute()
	}
	s.closeReplay()
	if s.sub != nil {
		_ = s.sub.Monitor("", 0) // a monitor that outlives its reader can crash libzmq
	}
	for _, soc := range s.opened {
		soc.Close()
	}
}

func (s *stream) poll() {
	s.poller = zmq4.NewPoller()
	for _, soc := range []*zmq4.Socket{s.sub, s.news, s.wake, s.dealer} {
		if soc != nil {
			s.poller.Add(soc, zmq4.POLLIN)
		}
	}
}

// turn waits for something to happen and deals with it.
func (s *stream) turn(ctx context.Context) error {
	s.yield(time.Now())
	s.beginReplay()
	if err := s.redial(ctx, time.Now()); err != nil {
		return err
	}
	ready, err := s.poller.Poll(s.wait(time.Now()))
	if err != nil {
		return err
	}
	if err := s.answerWaker(ready); err != nil {
		return err
	}
	if err := s.readLive(ctx); err != nil {
		return err
	}
	if err := s.readReplay(ctx); err != nil {
		return err
	}
	s.track.tick(time.Now())
	return nil
}

// answerWaker takes what rang; who rang has left word elsewhere.
func (s *stream) answerWaker(ready []zmq4.Polled) error {
	if !slices.ContainsFunc(ready, func(p zmq4.Polled) bool { return p.Socket == s.wake }) {
		return nil
	}
	for {
		if _, err := s.wake.RecvBytes(zmq4.DONTWAIT); err != nil {
			return unlessEmpty(err)
		}
	}
}

// wait returns how long nothing is due, rounded up to what poll can tell from nothing.
func (s *stream) wait(now time.Time) time.Duration {
	wait := maxWait
	for _, next := range [...]time.Time{s.track.next(), s.redialAt, s.yieldAt} {
		if !next.IsZero() {
			wait = min(wait, next.Sub(now)+time.Millisecond)
		}
	}
	return max(wait, 0)
}

// readLive takes live batches, some at a time, and before it believes them the news of the connection that
// they may have come on: libzmq tells of a connection before it hands over what came on it, so what they came
// on is known by then.
func (s *stream) readLive(ctx context.Context) error {
	for range maxPerTurn / liveBatches {
		last, err := s.takeLive()
		if err != nil {
			return err
		}
		if err := s.readNews(ctx); err != nil {
			return err
		}
		for i := 0; i < len(s.taken) && ctx.Err() == nil; i++ {
			s.track.live(s.taken[i])
		}
		clear(s.taken) // a quiet stream keeps no payloads
		if last || ctx.Err() != nil {
			s.late = time.Time{}
			return nil
		}
	}
	return s.keepUp(ctx, time.Now())
}

// keepUp throws away the live batches that wait for us when there has been no end of them for long: an engine
// that publishes faster than we can take would fill our memory. What is missing shows with the next one.
func (s *stream) keepUp(ctx context.Context, now time.Time) error {
	if s.late.IsZero() {
		s.late = now
	}
	if now.Sub(s.late) < s.opt.late {
		return nil
	}
	s.late = time.Time{}
	return s.skipLive(ctx)
}

// skipLive throws away all live batches that are there.
func (s *stream) skipLive(ctx context.Context) error {
	for ctx.Err() == nil {
		frames, err := s.receive(s.sub)
		if frames == nil || err != nil {
			return err
		}
	}
	return nil
}

// takeLive takes up to a few of the live batches that are there, in place of those it took last, and reports
// whether it has seen the last. Looking for news costs as much as taking a batch, so it is worth doing for
// several at once.
func (s *stream) takeLive() (last bool, err error) {
	s.taken = s.taken[:0]
	now := time.Now()
	for n, size := 0, 0; n < liveBatches && size < largeBatch; n++ {
		frames, err := s.receive(s.sub)
		if frames == nil || err != nil {
			return true, err
		}
		if m, ok := readLive(frames); ok {
			m.received = now
			s.taken = append(s.taken, m)
			size += len(m.payload)
		}
	}
	return false, nil
}

// connected throws away what is left of the connection before, which may be of another engine; the replay
// that follows has all that still matters.
func (s *stream) connected(ctx context.Context) error {
	if s.linked && s.src.Replay != "" {
		s.taken = s.taken[:0]
		if err := s.skipLive(ctx); err != nil {
			return err
		}
	}
	if s.linked {
		s.stats.Reconnects++
	}
	s.linked = true
	s.back.connected(time.Now())
	s.track.connected(time.Now())
	return nil
}

// readReplay takes batches of the replay under way, until there is none left, or another replay was asked
// for.
func (s *stream) readReplay(ctx context.Context) error {
	for range maxPerTurn {
		if s.dealer == nil || s.wanted || ctx.Err() != nil {
			return nil
		}
		frames, err := s.receive(s.dealer)
		if frames == nil || err != nil {
			return err
		}
		s.heard()
		switch m, end, ok := readReply(frames); {
		case end:
			s.track.replayEnded(time.Now())
		case ok:
			s.track.replayed(time.Now(), m)
		}
	}
	return nil
}

// receive returns the frames of a message, nil if there is none. They hold until the next call; their bytes
// are not used again.
func (s *stream) receive(soc *zmq4.Socket) ([][]byte, error) {
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

// apply implements effects.
func (s *stream) apply(m message) error {
	if len(m.payload) > largeBatch {
		defer func() { s.batch = kv.Batch{} }()
	}
	got, err := Decode(m.payload, &s.batch)
	s.stats.Unknown += uint64(got.Unknown)
	if err != nil || got.Malformed > 0 {
		s.stats.DecodeErrors++
	}
	switch {
	case err != nil || got.Lost > 0:
		return errUnread
	case s.foreign():
		return fmt.Errorf("is of data-parallel rank %d, not %d", s.batch.Rank, s.src.Rank)
	}
	s.count(m)
	s.sink.Apply(&s.batch)
	s.lags(m, time.Now())
	return nil
}

var errUnread = errors.New("could not be read")

// foreign reports whether the batch decoded last is another rank's, whose blocks are not to be credited to
// this one. Of an engine with one rank the number decides nothing: it may be the engine's own among others.
func (s *stream) foreign() bool {
	if s.batch.Rank < 0 || s.batch.Rank == s.src.Rank {
		return false
	}
	s.stats.WrongRank++
	return !s.src.Only
}

// count completes the batch and counts it.
func (s *stream) count(m message) {
	b := &s.batch
	b.Seq = m.seq
	if b.Rank < 0 {
		b.Rank = s.src.Rank
	}
	s.stats.Batches++
	s.stats.Bytes += uint64(len(m.payload))
	s.stats.Events += uint64(len(b.Events))
	s.stats.LastAt = b.At
}

func (s *stream) forget(reason string) { s.sink.Forget(reason) }

func (s *stream) state(st State, reason string) { s.sink.State(st, reason) }
