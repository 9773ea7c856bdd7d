package kvevents

import (
	"time"

	"github.com/pebbe/zmq4"
)

// ask implements effects. The replay begins at the next turn, or when it is its turn among the Context's
// others.
func (s *stream) ask(from uint64) {
	s.closeReplay()
	s.wanted, s.from = true, from
}

// closeReplay implements effects. A socket serves one replay only, so no late answer can be taken for one of
// the next.
func (s *stream) closeReplay() {
	s.wanted, s.yieldAt = false, time.Time{}
	s.opt.Context.places.leave(&s.place)
	if s.dealer == nil {
		return
	}
	s.dealer.Close()
	s.dealer = nil
	s.poll()
}

// beginReplay sends the request that is wanted, if there is a place. A socket that cannot be had is treated
// like an engine that does not answer.
func (s *stream) beginReplay() {
	if !s.wanted || !s.opt.Context.places.want(&s.place, s.track.standing()) {
		return
	}
	s.wanted = false
	now := time.Now()
	s.track.asked(now)
	s.answered, s.yieldAt = false, now.Add(s.opt.ReplayTimeout/silentShare)
	dealer, err := s.dialReplay()
	if err == nil {
		_, err = dealer.SendMessageDontwait("", seqFrame(s.from))
	}
	if err != nil {
		if dealer != nil {
			dealer.Close()
		}
		s.yield(s.yieldAt)
		return
	}
	s.dealer = dealer
	s.poll()
}

// dialReplay makes a connected DEALER: a REQ would take one reply only.
func (s *stream) dialReplay() (*zmq4.Socket, error) {
	dealer, err := s.z.NewSocket(zmq4.DEALER)
	if err != nil {
		return nil, err
	}
	return dealer, first([]error{
		dealer.SetLinger(0),
		s.tune(dealer, s.src.Replay),
		dealer.Connect(s.src.Replay),
	})
}
