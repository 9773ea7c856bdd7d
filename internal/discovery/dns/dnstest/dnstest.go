// Package dnstest is a DNS server for tests, on loopback.
package dnstest

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	wire "github.com/miekg/dns"
)

// Server answers over UDP and TCP at one address. It knows its records and no others. Safe for concurrent
// use.
type Server struct {
	Addr string

	mu      sync.Mutex // guards the following
	records map[string][]wire.RR
	rcode   int  // of every answer, unless it is 0
	failing fail // of the answers for one name
	silent  bool // gives no answer
	asked   []string
	tcp     int
}

type fail struct {
	name  string
	rcode int
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{records: map[string][]wire.RR{}}
	stream, packets := listen(t)
	s.Addr = stream.Addr().String()
	for _, end := range []*wire.Server{{Listener: stream}, {PacketConn: packets}} {
		ended := make(chan error, 1)
		up := make(chan struct{})
		end.Handler, end.NotifyStartedFunc = s, func() { close(up) }
		go func() { ended <- end.ActivateAndServe() }()
		<-up
		t.Cleanup(func() {
			if err := errors.Join(end.Shutdown(), <-ended); err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// listen finds a port that is free for TCP and UDP.
func listen(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	var failed error
	for range 20 {
		stream, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", stream.Addr().String())
		if err == nil {
			return stream, packets
		}
		failed = err
		_ = stream.Close()
	}
	t.Fatal(failed)
	return nil, nil
}

// Set replaces all records by those in lines of a zone file, such as "decode.llm. 5 IN A 10.0.0.1".
func (s *Server) Set(t testing.TB, lines ...string) {
	t.Helper()
	records := map[string][]wire.RR{}
	for _, line := range lines {
		rr, err := wire.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		key := key(rr.Header().Name, rr.Header().Rrtype)
		records[key] = append(records[key], rr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = records
	s.rcode, s.silent = 0, false
	s.failing = fail{}
}

// Fail lets the server give answers with this code, until the next Set.
func (s *Server) Fail(rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcode = rcode
}

// FailName lets the server give answers for one full name with this code, until the next Set.
func (s *Server) FailName(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = fail{name, rcode}
}

// Silence lets the server give no answer until the next Set.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// Asked returns the questions so far, such as "A decode.llm.", and how many came over TCP.
func (s *Server) Asked() (questions []string, tcp int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked), s.tcp
}

func key(name string, kind uint16) string {
	return wire.TypeToString[kind] + " " + strings.ToLower(name)
}

// ServeDNS implements [wire.Handler].
func (s *Server) ServeDNS(w wire.ResponseWriter, q *wire.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := q.Question[0]
	s.asked = append(s.asked, key(asked.Name, asked.Qtype))
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	if tcp {
		s.tcp++
	}
	if s.silent {
		return
	}
	m := new(wire.Msg).SetReply(q)
	m.Answer = s.records[key(asked.Name, asked.Qtype)]
	if alias := s.records[key(asked.Name, wire.TypeCNAME)]; len(alias) > 0 && len(m.Answer) == 0 {
		m.Answer = slices.Concat(alias, s.records[key(alias[0].(*wire.CNAME).Target, asked.Qtype)])
	}
	if !s.exists(asked.Name) {
		m.Rcode = wire.RcodeNameError
	}
	if asked.Name == s.failing.name {
		m.Rcode, m.Answer = s.failing.rcode, nil
	}
	if s.rcode != 0 {
		m.Rcode, m.Answer = s.rcode, nil
	}
	if !tcp {
		m.Truncate(wire.MinMsgSize)
	}
	_ = w.WriteMsg(m)
}

func (s *Server) exists(name string) bool {
	of := func(key string) bool { return strings.HasSuffix(key, " "+strings.ToLower(name)) }
	return slices.ContainsFunc(slices.Collect(maps.Keys(s.records)), of)
}
