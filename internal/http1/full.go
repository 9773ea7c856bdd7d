package http1

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A process has a limited number of file descriptors. If clients take them all, none is left for the
// engines' connections. So a server has [Server.MaxConns] connections at most. At that many it first closes
// connections that serve no request, and waits. A client without a place after fullWait gets an error
// answer.

// fullWait bounds how long a full server lets a new client wait for a place.
const fullWait = time.Second

// idleWait is what connections that serve no request have to end, also where fullWait is over.
const idleWait = 20 * time.Millisecond

// places counts the connections of a server, with the connections that net/http serves.
type places struct {
	open   int                   // guarded by Server.mu
	direct map[net.Conn]struct{} // connections that went to net/http at once; guarded by Server.mu

	since   time.Time    // since when the server is full; of the goroutine that accepts
	telling atomic.Int32 // clients that are getting the error answer
}

// mostTelling bounds [places.telling], since each holds a descriptor. Others are closed unanswered.
const mostTelling = 16

// full is the answer to a client that found no place.
const full = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n" +
	"Connection: close\r\nContent-Length: 128\r\n\r\n" +
	`{"error":{"message":"The router has no place for another connection.",` +
	`"type":"ServiceUnavailableError","param":null,"code":503}}`

// admit takes a place for nc, or refuses it. One goroutine calls it.
func (s *Server) admit(nc net.Conn) bool {
	if s.place() {
		s.places.since = time.Time{}
		return true
	}
	if s.places.since.IsZero() {
		s.places.since = time.Now()
	}
	by := s.places.since.Add(fullWait)
	if soon := time.Now().Add(idleWait); by.Before(soon) {
		by = soon
	}
	for time.Now().Before(by) && !s.closing.Load() {
		s.closeIdle()
		s.Rest.SetKeepAlivesEnabled(false) // closes idle connections there
		s.Rest.SetKeepAlivesEnabled(!s.closing.Load())
		time.Sleep(5 * time.Millisecond)
		if s.place() {
			s.places.since = time.Time{}
			return true
		}
	}
	if s.Refused != nil {
		s.Refused()
	}
	s.refuse(nc)
	return false
}

// place takes a place, if there is one.
func (s *Server) place() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.MaxConns > 0 && s.places.open >= s.MaxConns {
		return false
	}
	s.places.open++
	return true
}

// refuse tells a client that there is no place, as far as that is possible without waiting for the client.
func (s *Server) refuse(nc net.Conn) {
	_, sealed := nc.(*tls.Conn)
	if sealed || s.places.telling.Add(1) > mostTelling {
		if !sealed {
			s.places.telling.Add(-1)
		}
		nc.Close()
		return
	}
	go func() { // ends with the deadline
		defer s.places.telling.Add(-1)
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(fullWait))
		if _, err := io.WriteString(nc, full); err == nil && closeWrite(nc) == nil {
			_, _ = io.Copy(io.Discard, nc) // else the unread request may destroy the answer
		}
	}()
}

// giveWhole gives net/http a connection from which nothing was read.
func (s *Server) giveWhole(nc net.Conn, left *leftovers) {
	s.mu.Lock()
	s.places.direct[nc] = struct{}{}
	s.mu.Unlock()
	left.give(nc)
}

// watchRest has the places of connections that went to net/http at once given back.
func (s *Server) watchRest() {
	also := s.Rest.ConnState
	s.Rest.ConnState = func(nc net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			s.mu.Lock()
			if _, is := s.places.direct[nc]; is {
				delete(s.places.direct, nc)
				s.places.open--
			}
			s.mu.Unlock()
		}
		if also != nil {
			also(nc, state)
		}
	}
}
