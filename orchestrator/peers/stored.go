package peers

import "time"

// stored is a router whose reports come through a server. Guarded by the lock of its store.
type stored struct {
	instance string
	since    time.Time // when it was heard last
}

// name is the router's name as a source of bookings, for the pools and for the log.
func (r *stored) name() string { return "valkey:" + r.instance }

// These are the results of messages.
const (
	sent     = "sent"
	unsent   = "failed"
	received = "received"
	late     = "late"    // the server delayed it, so it says nothing about the present
	foreign  = "foreign" // not a message of a router
)

// take handles one message of the channel.
func (s *store) take(body []byte, now time.Time) {
	m, err := readMessage(body)
	if err != nil {
		s.ps.messages.WithLabelValues(foreign).Inc()
		s.ps.opt.Log.Debug("what was published to routers is not taken", "channel", s.channel, "error", err)
		return
	}
	s.ps.opt.Distrusts.HearDistrust(m.Distrusted) // counts for any delay and any sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Instance == s.ps.instance {
		s.hearEcho(m, now)
		return
	}
	// After the server stood still, a message is as late as this router's own message just before it.
	if s.health.delay > s.patience {
		s.ps.messages.WithLabelValues(late).Inc()
		return
	}
	m.addAge(s.health.delay)
	s.ps.messages.WithLabelValues(s.hearRouter(m, now)).Inc()
}

// hearEcho handles a message of this router: the server works.
func (s *store) hearEcho(m *message, now time.Time) {
	s.health.delay = max(0, s.ps.clock()-m.Sent)
	if s.health.delay > s.patience {
		return
	}
	s.health.echo, s.health.err = now, nil
	if s.health.heard.IsZero() {
		s.health.heard = now
	}
	if !s.health.up.Swap(true) {
		s.ps.opt.Log.Info("the server through which routers tell their bookings works again")
	}
}

// hearRouter handles a message of another router, and returns the result for the metric.
func (s *store) hearRouter(m *message, now time.Time) (result string) {
	r := s.routers[m.Instance]
	switch {
	case r == nil && (m.Left || !m.Whole): // the next whole message has the bookings
		return received
	case r == nil && len(s.routers) >= mostRouters:
		return foreign
	case r == nil:
		r = &stored{instance: m.Instance}
		s.routers[m.Instance] = r
		s.ps.opt.Log.Info("router tells its bookings", "instance", m.Instance)
	case m.Left:
		s.forgetLocked(r)
		s.ps.opt.Log.Info("router has ended", "instance", m.Instance)
		return received
	}
	s.ps.claim(r, m.Instance)
	r.since = now
	s.ps.hearUses(&m.bookings, now, s.patience)
	if m.Whole {
		s.ps.merge(r, &m.bookings, now)
	} else {
		s.ps.update(r, &m.bookings, now)
	}
	return received
}

// forgetLocked removes the bookings of r. If the router can be asked directly, it is asked at once.
func (s *store) forgetLocked(r *stored) {
	delete(s.routers, r.instance)
	s.ps.disclaim(r, r.instance)
	s.ps.merge(r, &bookings{}, time.Now())
	s.ps.askAgain()
}
