package kubernetestest

import (
	"maps"
	"net/url"
)

// Past is what the server had at a moment.
type Past struct {
	all     map[string]Pod
	version int
}

// Past is what the server has now.
func (s *Server) Past() *Past {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Past{maps.Clone(s.all), s.version}
}

// Behind ends the watches and answers from the past, whatever version it is asked for, as an API server does
// that is behind the others and reads its own cache. nil ends that.
func (s *Server) Behind(to *Past) { s.change(func() { s.behind, s.ending = to, s.ending+1 }) }

// Late counts the lists that were answered from the past.
func (s *Server) Late() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// stateLocked is what to answer a list from.
func (s *Server) stateLocked() (all map[string]Pod, version int) {
	if s.behind == nil {
		return s.all, s.version
	}
	s.late++
	return s.behind.all, s.behind.version
}

// continues says whether a watch goes on from a version that a server in the past does not have yet.
func (s *Server) continues(q url.Values) bool {
	return s.behind != nil && q.Get("sendInitialEvents") != "true"
}
