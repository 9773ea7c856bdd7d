package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
)

// early is a server that sends its text on each connection before any request, and then nothing more. The
// test gets the client after the text has arrived.
func early(t *testing.T, said string) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spoken := make(chan struct{})
	go func() { // ends with the listener
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(nc, said)
			nc.(*net.TCPConn).CloseWrite()
			spoken <- struct{}{}
			go func() { // ends with the connection
				defer nc.Close()
				io.Copy(io.Discard, nc)
			}()
		}
	}()
	c, err := New(Options{
		URL: "http://" + l.Addr().String(),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				<-spoken
				arrived(nc)
			}
			return nc, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		l.Close()
	})
	return c
}

// arrived waits until the socket has something to read.
func arrived(nc net.Conn) {
	for cn := newConn(nc); cn.peek() == peekNothing; {
		runtime.Gosched()
	}
}

// The client reads at once what the engine sent before the request, as no further readiness event will come.
func TestWhatCameBeforeTheRequestIsRead(t *testing.T) {
	for _, row := range []struct{ name, said, want string }{
		{"an answer", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy", "busy"},
		{"the end", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := early(t, row.said)
			_, got, err := c.Post(t.Context(), "/", []byte("x"))
			if string(got) != row.want || (err == nil) != (row.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, row.want)
			}
			if row.want == "" && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want io.ErrUnexpectedEOF", err)
			}
		})
	}
}

// The client skips all connections that ended while idle, and uses an open one.
func TestDeadConnectionsArePassedOver(t *testing.T) {
	c, s, conns := serve(t, Options{}, echo)
	var open []*Response
	for range 3 {
		r, err := c.Do(t.Context(), &Request{Method: http.MethodPost, Path: "/", ID: name, Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	for _, r := range open {
		if _, err := r.ReadAll(10); err != nil {
			t.Fatal(err)
		}
	}
	s.CloseClientConnections()
	waitDead(t, c)
	if _, got, err := send(t.Context(), c, "/", []byte("y")); string(got) != "y" || err != nil {
		t.Fatalf("got %q, %v; want y", got, err)
	}
	if n := conns.Load(); n != 4 {
		t.Errorf("got %d connections, want 4", n)
	}
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	if n := len(c.idle.conns); n != 1 {
		t.Errorf("got %d idle connections, want only the new one", n)
	}
}
