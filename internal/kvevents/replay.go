package kvevents

import (
	"context"
	"time"

	"github.com/pebbe/zmq4"
)

// replay is the replay that a stream wants or reads: one at a time.
type replay struct {
	wanted bool   // it is to begin as soon as there is a place
	from   uint64 // its first batch
	places *places
	place  place

	dealer   *zmq4.Socket // of the one under way, or nil
	yieldAt  time.Time    // when the place goes if nothing has come by then, zero if something has
	answered bool         // some part of the answer has come
}

// end gives the place back and closes the socket, and reports whether there was one.
func (r *replay) end() bool {
	r.wanted, r.yieldAt = false, time.Time{}
	r.places.leave(&r.place)
	if r.dealer == nil {
		return false
	}
	r.dealer.Close()
	r.dealer = nil
	return true
}

// yield gives the place of a replay back that has said nothing for a while. It is looked for all the same.
func (r *replay) yield(now time.Time) {
	if due(r.yieldAt, now) {
		r.yieldAt = time.Time{}
		r.places.leave(&r.place)
	}
}

// heard says that the replay under way answers.
func (r *replay) heard() {
	if !r.answered {
		r.answered, r.yieldAt = true, time.Time{}
		r.places.insist(&r.place)
	}
}

// ask implements effects. The replay begins at the next turn, or when it is its turn among the Context's
// others.
func (s *stream) ask(from uint64) {
	s.closeReplay()
	s.replay.wanted, s.replay.from = true, from
}

// closeReplay implements effects. A socket serves one replay only, so no late answer can be mistaken for an
// answer of the next replay.
func (s *stream) closeReplay() {
	if s.replay.end() {
		s.poll()
	}
}

// beginReplay sends the request that is wanted, if there is a place. A socket that cannot be had is treated
// like an engine that does not answer.
func (s *stream) beginReplay() {
	r := &s.replay
	if !r.wanted || !r.places.want(&r.place, s.track.ask.standing()) {
		return
	}
	r.wanted = false
	now := time.Now()
	s.track.asked(now)
	r.answered, r.yieldAt = false, now.Add(s.opt.ReplayTimeout/silentShare)
	dealer, err := s.dialReplay()
	if err == nil {
		_, err = dealer.SendMessageDontwait("", seqFrame(r.from))
	}
	if err != nil {
		if dealer != nil {
			dealer.Close()
		}
		r.yield(r.yieldAt)
		return
	}
	r.dealer = dealer
	s.poll()
}

// dialReplay makes a connected DEALER: a REQ would take one reply only.
func (s *stream) dialReplay() (*zmq4.Socket, error) {
	dealer, err := s.sockets.z.NewSocket(zmq4.DEALER)
	if err != nil {
		return nil, err
	}
	return dealer, first([]error{
		dealer.SetLinger(0),
		s.sockets.tune(dealer, s.src.Replay),
		dealer.Connect(s.src.Replay),
	})
}

// readReplay takes batches of the replay under way, until there is none left, or another replay was asked
// for.
func (s *stream) readReplay(ctx context.Context) error {
	for range maxPerTurn {
		if s.replay.dealer == nil || s.replay.wanted || ctx.Err() != nil {
			return nil
		}
		frames, err := s.sockets.receive(s.replay.dealer)
		if frames == nil || err != nil {
			return err
		}
		s.replay.heard()
		switch m, end, ok := readReply(frames); {
		case end:
			s.track.replayEnded(time.Now())
		case ok:
			if len(frames) == 4 {
				s.opt.heardOf(frames[1])
			}
			s.track.replayed(time.Now(), m)
		}
	}
	return nil
}
