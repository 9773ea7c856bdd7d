package http1

import (
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// crowded is a server on a real socket that accepts two connections. Its handler waits for hold to close.
func crowded(t *testing.T, hold chan struct{}) (s *Server, addr string, refused *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused = new(atomic.Int32)
	s = &Server{
		Usual: []string{"/usual"}, MaxConns: 2, Refused: func() { refused.Add(1) },
		Rest: &http.Server{
			ErrorLog: log.New(io.Discard, "", 0),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-hold
				_, _ = io.WriteString(w, "well")
			}),
		},
	}
	over := make(chan error)
	go func() { over <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-over
	})
	return s, l.Addr().String(), refused
}

func (s *Server) openNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places.open
}

// A client that is being served keeps its connection. Another client gets an error while both connections are
// busy. A connection that serves no request is closed for a new client.
func TestPlacesAreGivenOnceAndBack(t *testing.T) {
	for _, head := range []string{"POST /usual", "GET /rest"} {
		t.Run(head, func(t *testing.T) {
			hold := make(chan struct{})
			s, addr, refused := crowded(t, hold)
			ask := func() (net.Conn, func() string) {
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { nc.Close() })
				_, _ = io.WriteString(nc, head+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
				return nc, func() string {
					b := make([]byte, 1000)
					n, _ := nc.Read(b)
					return string(b[:n])
				}
			}
			_, one := ask()
			two, second := ask()
			until(t, "both have a place", func() bool { return s.openNow() == 2 })
			for range 3 {
				nc, third := ask()
				if got := third(); !strings.Contains(got, " 503 ") || !strings.HasSuffix(got, `"code":503}}`) {
					t.Errorf("got %q for a third client, want a 503 with a JSON error", got)
				}
				nc.Close()
			}
			if n := refused.Load(); n != 3 {
				t.Errorf("got %d reports of refused connections, want 3", n)
			}
			close(hold)
			for _, hear := range []func() string{one, second} {
				if got := hear(); !strings.Contains(got, " 200 ") {
					t.Errorf("got %q for a client with a connection, want 200", got)
				}
			}
			two.Close() // the other connection stays open without a request
			for range 5 {
				if _, more := ask(); !strings.Contains(more(), " 200 ") {
					t.Error("a new client got no 200, although another connection serves no request")
				}
			}
			if n := s.openNow(); n > 2 {
				t.Errorf("got %d open connections, want at most 2", n)
			}
			s.Rest.SetKeepAlivesEnabled(false)
			until(t, "no place is taken", func() bool { s.closeIdle(); return s.openNow() == 0 })
		})
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this did not happen within 10s: %s", what)
		}
	}
}
