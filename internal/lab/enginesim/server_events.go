package enginesim

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/kvevents"
)

// startEvents binds the publisher, and stores its ports for the next start.
func (r *rank) startEvents() error {
	o := r.srv.o
	if o.EventsEndpoint == "" {
		return nil
	}
	if r.events.bind.Endpoint == "" {
		r.events.bind = r.publisherOptions()
	}
	if !r.srv.listens() {
		return nil
	}
	p, err := kvevents.NewPublisher(r.events.bind)
	if err != nil {
		return err
	}
	r.events.bind.Endpoint, r.events.bind.Replay = p.Endpoints()
	r.events.pub.Store(p)
	return nil
}

// Events returns the event addresses of the first rank, with real ports; "" if it publishes none.
func (s *Server) Events() (endpoint, replay string) {
	p := s.cores.ranks[0].events.pub.Load()
	if p == nil {
		return "", ""
	}
	return p.Endpoints()
}

// stopEvents closes the sockets, like the end of the process.
func (r *rank) stopEvents() {
	if p := r.events.pub.Swap(nil); p != nil {
		p.Close()
	}
}

func (r *rank) publisherOptions() kvevents.PublisherOptions {
	o := r.srv.o
	p := kvevents.PublisherOptions{
		Context: o.ZMQ, Endpoint: offsetPort(o.EventsEndpoint, r.n), Topic: o.Topic, Form: kvevents.Map,
		ReplayFrames: 4,
	}
	p.BufferSteps = o.Wrong.bufferSteps()
	if r.srv.process.versionAtLeast(33) {
		p.ReplayHWM = 2 * (p.BufferSteps + 1)
	}
	if !o.NoReplay {
		p.Replay = offsetPort(cmp.Or(o.ReplayEndpoint, freePort(o.EventsEndpoint)), r.n)
	}
	if !r.srv.process.versionAtLeast(24) {
		p.Form = kvevents.Array
	}
	if !r.srv.process.versionAtLeast(26) {
		p.ReplayFrames = 3
	}
	return p
}

// offsetPort adds a rank to the port. Port 0 is unchanged.
func offsetPort(endpoint string, n int) string {
	i := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[i+1:])
	if err != nil || port == 0 || n == 0 {
		return endpoint
	}
	return endpoint[:i+1] + strconv.Itoa(port+n)
}

func freePort(endpoint string) string { return endpoint[:strings.LastIndexByte(endpoint, ':')+1] + "0" }

// resumeEvents binds the publishers that ended with the process, at their former addresses.
func (s *Server) resumeEvents() error {
	for _, r := range s.cores.ranks {
		if r.events.pub.Load() == nil {
			if err := r.startEvents(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Endpoints returns a rank's event addresses, with real ports; "" without events.
func (s *Server) Endpoints(rank int) (events, replay string) {
	return s.cores.ranks[rank].events.bind.Endpoint, s.cores.ranks[rank].events.bind.Replay
}
