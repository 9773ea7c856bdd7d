package kvevents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pebbe/zmq4"

	"github.com/tandem-router/tandem/internal/kv"
)

const (
	maxWait    = 10 * time.Second // longest sleep of an idle stream
	maxPerTurn = 256              // messages of one socket in one turn
	largeBatch = 1 << 20          // bytes of payload from which on the decoded batch is not kept for reuse
)

// stream is one Run of a follower: its sockets, and the tracker that decides about each message. Owned by
// the goroutine in Run.
type stream struct {
	src   Source
	sink  Sink
	opt   Options
	track *tracker
	stats Stats
	batch kv.Batch

	sockets sockets
	live    subscription
	replay  replay
	wake    wakeup
	poller  *zmq4.Poller
}

// open makes all sockets but the replay's, and dials.
func (s *stream) open(ctx context.Context) error {
	if err := s.live.open(&s.sockets); err != nil {
		return err
	}
	if err := s.wake.open(ctx, &s.sockets); err != nil {
		return err
	}
	s.replay.place.ring = s.wake.waker.ring
	s.poll()
	return s.dial()
}

// dial connects the subscription and looks whether the replay address could be dialled too.
func (s *stream) dial() error {
	if err := s.live.dial(&s.sockets, &s.src); err != nil {
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

func (s *stream) close() {
	s.wake.close()
	s.closeReplay()
	s.live.close()
	s.sockets.close()
}

func (s *stream) poll() {
	s.poller = zmq4.NewPoller()
	for _, soc := range []*zmq4.Socket{s.live.sub, s.live.news, s.wake.near, s.replay.dealer} {
		if soc != nil {
			s.poller.Add(soc, zmq4.POLLIN)
		}
	}
}

// turn waits for something to happen and deals with it.
func (s *stream) turn(ctx context.Context) error {
	s.replay.yield(time.Now())
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

// answerWaker empties the wake socket. A goroutine that rings leaves its message elsewhere.
func (s *stream) answerWaker(ready []zmq4.Polled) error {
	if !slices.ContainsFunc(ready, func(p zmq4.Polled) bool { return p.Socket == s.wake.near }) {
		return nil
	}
	return s.wake.drain()
}

// wait returns the time until work is due, a millisecond more for poll's resolution.
func (s *stream) wait(now time.Time) time.Duration {
	wait := maxWait
	for _, next := range [...]time.Time{s.track.next(), s.live.redialAt, s.replay.yieldAt} {
		if !next.IsZero() {
			wait = min(wait, next.Sub(now)+time.Millisecond)
		}
	}
	return max(wait, 0)
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

// lags counts the delay of a live batch that the sink has just taken. Batches of a replay are history and
// are not counted.
func (s *stream) lags(m message, applied time.Time) {
	if m.received.IsZero() {
		return
	}
	s.stats.Applying.add(applied.Sub(m.received))
	if s.batch.At.IsZero() {
		return
	}
	lag := applied.Sub(s.batch.At)
	if lag < 0 {
		s.stats.Skewed++
	}
	s.stats.Behind.add(max(lag, 0))
	s.stats.Apart = m.received.Sub(s.batch.At)
}

var errUnread = errors.New("could not be read")

// foreign reports whether the last decoded batch is another rank's: its blocks must not count for this rank.
// The number decides nothing for an engine with one rank: it may be the engine's number among other engines.
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
