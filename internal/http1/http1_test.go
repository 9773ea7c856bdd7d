package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/memnet"
)

// served is a running server that counts nothing and has only the limits that a test sets.
type served struct {
	t    *testing.T
	s    *Server
	addr string
	over chan error // the result of Serve
	dial func() (net.Conn, error)
	rest chan string // method and path of each request that net/http serves
}

// start serves POST /usual with this package, and all other requests with net/http. Both call h.
func start(t *testing.T, l net.Listener, h http.HandlerFunc, set func(*http.Server)) *served {
	x := &served{t: t, addr: l.Addr().String(), over: make(chan error, 1), rest: make(chan string, 100)}
	x.dial = func() (net.Conn, error) { return net.Dial("tcp", x.addr) }
	x.s = &Server{Usual: []string{"/usual"}, Rest: &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ours := w.(*response); !ours {
				x.rest <- r.Method + " " + r.RequestURI
			}
			h(w, r)
		}),
	}}
	if set != nil {
		set(x.s.Rest)
	}
	go func() { x.over <- x.s.Serve(l) }()
	return x
}

func (x *served) end() {
	x.t.Helper()
	if err := x.s.Close(); err != nil {
		x.t.Error(err)
	}
	if err := <-x.over; !errors.Is(err, http.ErrServerClosed) {
		x.t.Errorf("got %v from Serve, want ErrServerClosed", err)
	}
}

// onSockets returns a server on real sockets.
func onSockets(t *testing.T, h http.HandlerFunc, set func(*http.Server)) *served {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := start(t, l, h, set)
	t.Cleanup(x.end)
	return x
}

// inMemory calls story with a server on a network in memory, in fake time.
func inMemory(t *testing.T, h http.HandlerFunc, set func(*http.Server), story func(t *testing.T, x *served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mem memnet.Net
		l, err := mem.Listen("tcp", "front:80")
		if err != nil {
			t.Fatal(err)
		}
		x := start(t, l, h, set)
		x.dial = func() (net.Conn, error) { return mem.Dial(t.Context(), "tcp", "front:80") }
		story(t, x)
		x.end()
	})
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(b) // the client checks what arrives
}

func usual(body string) string {
	return fmt.Sprintf("POST /usual HTTP/1.1\r\nHost: front\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

type client struct {
	t  *testing.T
	nc net.Conn
	in *bufio.Reader
}

func (x *served) client() *client {
	x.t.Helper()
	nc, err := x.dial()
	if err != nil {
		x.t.Fatal(err)
	}
	return &client{x.t, nc, bufio.NewReader(nc)}
}

func (c *client) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, text); err != nil {
		c.t.Error(err)
	}
}

// hear reads one answer.
func (c *client) hear() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodPost})
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, string(body)
}

// One connection carries several usual requests. A request may arrive before the answer to the previous one,
// in pieces, or with a body that follows later.
func TestUsualRequests(t *testing.T) {
	x := onSockets(t, echo, nil)
	c := x.client()
	defer c.nc.Close()
	long := strings.Repeat("long ", 100_000)
	c.say(usual("one") + usual("two") + usual(""))
	for _, want := range []string{"one", "two", ""} {
		if resp, got := c.hear(); resp.StatusCode != 200 || got != want || resp.Header.Get("Date") == "" {
			t.Errorf("got %s, body %q, header %v; want 200, body %q and a date", resp.Status, got, resp.Header, want)
		}
	}
	go c.say(usual(long))
	if _, got := c.hear(); got != long {
		t.Errorf("got %d bytes, want %d", len(got), len(long))
	}
	for piece := range slices.Chunk([]byte(usual("in pieces")), 7) {
		c.say(string(piece))
	}
	if _, got := c.hear(); got != "in pieces" {
		t.Errorf(`got %q, want "in pieces"`, got)
	}
	if len(x.rest) > 0 && runtime.GOOS == "linux" {
		t.Errorf("net/http served %q, want that it serves no request", <-x.rest)
	}
}

// net/http serves every request that is not usual, and receives each of its bytes. It also serves the later
// requests of the connection.
func TestTheRestGoesToNetHTTP(t *testing.T) {
	const (
		line   = "POST /usual HTTP/1.1\r\nHost: front\r\n"
		two    = "Content-Length: 2\r\n"
		hi     = "\r\nhi"
		chunks = "Transfer-Encoding: chunked\r\n"
	)
	for name, tt := range map[string]struct {
		says   string
		status int
	}{
		"another method":         {"GET /usual HTTP/1.1\r\nHost: front\r\n\r\n", 200},
		"another path":           {"POST /other HTTP/1.1\r\nHost: front\r\n" + two + hi, 200},
		"a query":                {"POST /usual?a=b HTTP/1.1\r\nHost: front\r\n" + two + hi, 200},
		"chunks":                 {line + chunks + "\r\n2\r\nhi\r\n0\r\n\r\n", 200},
		"no length":              {line + "\r\n", 200},
		"two lengths":            {line + two + "Content-Length: 3\r\n" + hi, 400},
		"length and chunks":      {line + two + chunks + "\r\n0\r\n\r\n", 200},
		"a space before a colon": {line + "Content-Length : 2\r\n" + hi, 400},
		"a folded line":          {line + "X-A: b\r\n c\r\n" + two + hi, 200},
		"bare line feeds":        {"POST /usual HTTP/1.1\nHost: front\nContent-Length: 2\n\nhi", 200},
		"no host":                {"POST /usual HTTP/1.1\r\n" + two + hi, 400},
		"two hosts":              {line + "Host: b\r\n" + two + hi, 400},
		"HTTP/1.0":               {"POST /usual HTTP/1.0\r\nHost: front\r\n" + two + hi, 200},
		"a long head":            {line + "X-A: " + strings.Repeat("a", 2*bufferSize) + "\r\n" + two + hi, 200},
		"another encoding":       {line + "X-A: \xff\r\n" + two + hi, 200},
	} {
		t.Run(name, func(t *testing.T) {
			x := onSockets(t, echo, nil)
			c := x.client()
			defer c.nc.Close()
			c.say(usual("first"))
			c.hear()
			for range 2 {
				c.say(tt.says)
				if resp, _ := c.hear(); resp.StatusCode != tt.status {
					t.Errorf("got %s, want %d", resp.Status, tt.status)
				}
				if tt.status != 200 || strings.Contains(name, "1.0") || strings.Contains(name, "length and") {
					break // net/http closes the connection
				}
			}
			if tt.status == 200 && len(x.rest) == 0 {
				t.Error("net/http did not get the request")
			}
		})
	}
}

// A client that waits for 100 Continue gets it.
func TestExpectGoesToNetHTTP(t *testing.T) {
	x := onSockets(t, echo, nil)
	c := x.client()
	defer c.nc.Close()
	c.say("POST /usual HTTP/1.1\r\nHost: front\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if line, err := c.in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, %v; want 100 Continue", line, err)
	}
}

// For any behavior of a handler, a client sees the same as with net/http.
func TestAnswersAsNetHTTP(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 5_000)
	for name, h := range map[string]http.HandlerFunc{
		"nothing":   func(http.ResponseWriter, *http.Request) {},
		"a status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"no body":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"an error":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) },
		"not typed": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("12"))
			_, _ = w.Write([]byte("345"))
			if _, err := w.Write([]byte("6")); !errors.Is(err, http.ErrContentLength) {
				panic(err)
			}
		},
		"too little": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("12"))
		},
		"long": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) },
		"long pieces": func(w http.ResponseWriter, _ *http.Request) {
			for range 5 {
				_, _ = w.Write(long[:1500])
			}
			_, _ = w.Write(long)
		},
		"a stream": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{"text/event-stream"}
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
		},
		"a late field": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Late", "1")
			_, _ = w.Write([]byte("a"))
		},
		"odd fields": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Two"] = []string{"a", "b"}
			w.Header().Set("X-Break", "a\r\nX-Injected: b")
			w.Header().Set("Date", "Mon, 01 Jan 2024 00:00:00 GMT")
			_, _ = w.Write([]byte("a"))
		},
		"the last":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") },
		"the body":   echo,
		"left alone": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("no")) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			panic(http.ErrAbortHandler)
		},
		"cut stream": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			_ = http.NewResponseController(w).Flush()
			panic("a fault")
		},
		"the request": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.Close)
			_, known := r.Context().Value(http.ServerContextKey).(*http.Server)
			fmt.Fprintln(w, known, r.Context().Value(http.LocalAddrContextKey) != nil)
			for _, key := range slices.Sorted(maps.Keys(r.Header)) {
				fmt.Fprintln(w, key, r.Header[key])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := onSockets(t, h, nil)
			plain := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go plain.Serve(l)
			defer plain.Close()
			ours := talk(t, x.addr)
			theirs := talk(t, l.Addr().String())
			if !reflect.DeepEqual(ours, theirs) {
				t.Errorf("got %q\nwant the answers of net/http: %q", ours, theirs)
			}
			if len(x.rest) > 0 && runtime.GOOS == "linux" {
				t.Error("net/http got the request, want that this package serves it")
			}
		})
	}
}

// talk sends two requests over a connection and returns the results.
func talk(t *testing.T, addr string) (said []string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	for _, last := range []string{"", "Connection: close\r\n"} {
		// The server may have closed the connection. Then there is no answer.
		_, _ = io.WriteString(nc, "POST /usual HTTP/1.1\r\nhost: front\r\nx-a: 1\r\nX-A:  2 \r\n"+
			"ACCEPT: */*\r\n"+last+"Content-Length: 4\r\n\r\nbody")
		resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
		if err != nil {
			return append(said, "no answer")
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Header.Get("Date") == "" {
			t.Error("an answer has no date")
		}
		if !strings.Contains(resp.Header.Get("Date"), "2024") {
			resp.Header.Del("Date")
		}
		said = append(said, fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding,
			resp.Close, len(body), string(body[:min(len(body), 100)]), err))
	}
	return said
}

// A client that hangs up ends its request. It may close the connection, or only its sending direction. It may
// do so before the handler runs, or later.
func TestHangingUpEndsTheRequest(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed": (*net.TCPConn).Close, "half closed": (*net.TCPConn).CloseWrite,
		"reset": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, late), func(t *testing.T) {
				begun, ended := make(chan bool), make(chan error)
				x := onSockets(t, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.ReadAll(r.Body) // ends with the body, or with the context of the request
					begun <- true
					<-r.Context().Done()
					ended <- r.Context().Err()
				}, nil)
				c := x.client()
				c.say(usual("a"))
				if late {
					<-begun
				}
				if err := leave(c.nc.(*net.TCPConn)); err != nil {
					t.Fatal(err)
				}
				defer c.nc.Close()
				if !late {
					select {
					case <-begun:
					case err := <-x.over: // Serve ends here only if the server is faulty
						t.Fatal(err)
					}
				}
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled", err)
				}
			})
		}
	}
}

// A client that hangs up ends only its own request. Requests of other clients continue.
func TestHangingUpEndsNoOtherRequest(t *testing.T) {
	x := onSockets(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) == "wait" {
			<-r.Context().Done()
			return
		}
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(b)
	}, nil)
	stays := x.client()
	defer stays.nc.Close()
	for i := range 200 {
		leaves := x.client()
		leaves.say(usual("wait"))
		leaves.nc.Close()
		comes := x.client()
		comes.say(usual("new"))
		if resp, got := comes.hear(); got != "new" {
			t.Fatalf(`round %d, new client: got %s, body %q; want body "new"`, i, resp.Status, got)
		}
		comes.nc.Close()
		stays.say(usual("old"))
		if resp, got := stays.hear(); got != "old" {
			t.Fatalf(`round %d, old client: got %s, body %q; want body "old"`, i, resp.Status, got)
		}
	}
}

// The context of a request ends when its handler has returned.
func TestContextEndsWithTheRequest(t *testing.T) {
	ended := make(chan bool, 1)
	x := onSockets(t, func(_ http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { ended <- true })
	}, nil)
	c := x.client()
	defer c.nc.Close()
	c.say(usual("a"))
	c.hear()
	<-ended
}

// The server drops a client that sends nothing, half a head or half a body, after the time limit of each. A
// client that waits between two requests keeps its connection for a longer time.
func TestSlowClientsAreLeft(t *testing.T) {
	limits := func(s *http.Server) { s.ReadHeaderTimeout, s.IdleTimeout = 10*time.Second, 2*time.Minute }
	h := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute))
		echo(w, r)
	}
	for name, tt := range map[string]struct {
		says   string
		before bool // the client had a request before
		within time.Duration
		heard  bool // the client gets an answer before the end
	}{
		"nothing":           {"", false, 10 * time.Second, false},
		"half a head":       {usual("a")[:20], false, 10 * time.Second, false},
		"nothing more":      {"", true, 2 * time.Minute, false},
		"half a later head": {usual("a")[:20], true, 10 * time.Second, false},
		"half a body":       {usual("abc")[:len(usual("abc"))-1], false, time.Minute, true},
		"half a later body": {usual("abc")[:len(usual("abc"))-1], true, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, h, limits, func(t *testing.T, x *served) {
				c := x.client()
				if tt.before {
					c.say(usual("a"))
					c.hear()
					time.Sleep(100 * time.Second)
					c.say(usual("a"))
					c.hear()
				}
				began := time.Now()
				c.say(tt.says)
				if tt.heard {
					if resp, _ := c.hear(); resp.StatusCode != http.StatusBadRequest {
						t.Errorf("got %s, want 400", resp.Status)
					}
				}
				if _, err := c.in.ReadByte(); err == nil {
					t.Error("the client got another byte, want the end of the connection")
				}
				if took := time.Since(began); took < tt.within || took > tt.within+3*time.Second {
					t.Errorf("the client was dropped after %v, want %v to 3s more", took, tt.within)
				}
			})
		})
	}
}

// A client that does not read is dropped at the write deadline. The deadline is set again for each
// request.
func TestClientsThatDoNotReadAreLeft(t *testing.T) {
	var ended chan error
	inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
		to := http.NewResponseController(w)
		_ = to.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = w.Write([]byte("a"))
		ended <- to.Flush()
	}, nil, func(t *testing.T, x *served) {
		ended = make(chan error, 1) // made here, so that it belongs to the bubble of fake time
		c := x.client()
		for range 5 {
			c.say(usual(""))
			if _, got := c.hear(); got != "a" || <-ended != nil {
				t.Errorf(`got %q, want "a" and no error of Flush`, got)
			}
			time.Sleep(7 * time.Second)
		}
		began := time.Now()
		c.say(usual(""))
		if err := <-ended; err == nil {
			t.Error("Flush wrote to a client that does not read, want an error")
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the client was dropped after %v, want 10s to 11s", took)
		}
		c.nc.Close()
	})
}

// A shutdown lets running requests end and closes connections without a request. Each answer tells its client
// that the connection closes. The shutdown ends with the last request.
func TestShutdown(t *testing.T) {
	inMemory(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Minute)
		echo(w, r)
	}, nil, func(t *testing.T, x *served) {
		busy, idle := x.client(), x.client()
		idle.say(usual("a"))
		idle.hear()
		busy.say(usual("b"))
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := x.s.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v from Shutdown, want DeadlineExceeded", err)
		}
		if _, err := idle.in.ReadByte(); err == nil {
			t.Error("an idle connection is still open")
		}
		ended := make(chan error, 1)
		go func() { ended <- x.s.Shutdown(t.Context()) }()
		if resp, got := busy.hear(); got != "b" || !resp.Close {
			t.Errorf(`got body %q, close %v; want body "b", close true`, got, resp.Close)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// During a shutdown, a new connection may still send its first request for a moment. This is true for usual
// requests and for all others.
func TestShutdownWaitsForNewConnections(t *testing.T) {
	for name, says := range map[string]string{
		"usual":    usual("a"),
		"the rest": "POST /other HTTP/1.1\r\nHost: front\r\nContent-Length: 1\r\n\r\na",
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, echo, nil, func(t *testing.T, x *served) {
				c := x.client()
				synctest.Wait() // the server has accepted c; otherwise c would close with the listener
				ended := make(chan error, 1)
				go func() { ended <- x.s.Shutdown(t.Context()) }()
				time.Sleep(time.Second)
				c.say(says)
				if resp, got := c.hear(); got != "a" || !resp.Close {
					t.Errorf(`got body %q, close %v; want body "a", close true`, got, resp.Close)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A long body that the handler does not read does not prevent its client from reading the answer.
func TestUnreadBodies(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }
	x := onSockets(t, refuse, nil)
	for _, n := range []int{10, 100_000, longestBody} {
		c := x.client()
		go func() { _, _ = io.WriteString(c.nc, usual(strings.Repeat("a", n))) }() // the server may stop reading
		if resp, _ := c.hear(); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("body of %d bytes: got %s, want 429", n, resp.Status)
		}
		c.nc.Close()
	}
}

// The server does not read a very long body to its end. It closes the connection, and the answer says so.
// Otherwise the client would send its next request into a closed connection, or the server would run that
// request and the client would get no answer.
func TestUnreadBodiesEndTheConnection(t *testing.T) {
	requests := make(chan bool, 10)
	x := onSockets(t, func(w http.ResponseWriter, _ *http.Request) {
		requests <- true
		http.Error(w, "no", http.StatusUnauthorized)
	}, nil)
	c := x.client()
	defer c.nc.Close()
	go func() { // the server may stop reading
		_, _ = io.WriteString(c.nc, usual(strings.Repeat("a", 2*longestUnread))+usual("next"))
	}()
	if resp, _ := c.hear(); resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Errorf("got %s, close %v; want 401, close true", resp.Status, resp.Close)
	}
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("the client got another byte, want the end of the connection")
	}
	c.nc.Close()
	x.s.Close()
	if len(requests) != 1 {
		t.Errorf("got %d served requests, want 1", len(requests))
	}
}

// A body that the handler does not read may arrive slowly. If the server closed the connection meanwhile, it
// would be reset, and a client that reads only after its last byte would not see the answer.
func TestUnreadBodiesMayComeSlowly(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }
	inMemory(t, refuse, nil, func(t *testing.T, x *served) {
		c := x.client()
		for range 2 { // two requests on one connection
			text, sent := usual(strings.Repeat("a", 100_000)), make(chan bool)
			go func() {
				for part := range slices.Chunk([]byte(text), len(text)/4) {
					c.say(string(part))
					time.Sleep(400 * time.Millisecond)
				}
				close(sent)
			}()
			if resp, _ := c.hear(); resp.StatusCode != http.StatusTooManyRequests || resp.Close {
				t.Errorf("got %s, close %v; want 429, close false", resp.Status, resp.Close)
			}
			<-sent
		}
		c.nc.Close()
	})
}

// Some clients send a line break after a body. As in net/http, this line break is no request: the next
// request is read correctly, and the connection stays idle.
func TestLineBreaksBehindABody(t *testing.T) {
	limits := func(s *http.Server) { s.ReadHeaderTimeout, s.IdleTimeout = 10*time.Second, 2*time.Minute }
	inMemory(t, echo, limits, func(t *testing.T, x *served) {
		c := x.client()
		for range 3 {
			c.say(usual("a") + "\r\n")
			if resp, got := c.hear(); got != "a" {
				t.Fatalf(`got %s, body %q; want body "a"`, resp.Status, got)
			}
			time.Sleep(time.Minute)
			c.say("\r\n")
			time.Sleep(30 * time.Second)
		}
		c.say("GET /other HTTP/1.1\r\nHost: front\r\n\r\n")
		if resp, _ := c.hear(); resp.StatusCode != http.StatusOK {
			t.Errorf("got %s, want 200", resp.Status)
		}
		c = x.client()
		c.say(usual("a") + "\r\n")
		c.hear()
		time.Sleep(time.Second)
		began := time.Now()
		if err := x.s.Shutdown(t.Context()); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("got %v from Shutdown after %v, want nil within 2s", err, time.Since(began))
		}
	})
}

// A client that closes its sending direction within a head gets an error, as with net/http.
func TestAHeadThatIsCutShortIsRefused(t *testing.T) {
	for _, cut := range []string{"POST /usual HTTP/1.1\r\nHost: a\r\nContent-Le", "PO"} {
		c := onSockets(t, echo, nil).client()
		c.say(cut)
		if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if resp, _ := c.hear(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("head %q: got %s, want 400", cut, resp.Status)
		}
	}
}

// net/http reads a usual request in the same way as this package.
func FuzzHead(f *testing.F) {
	f.Add([]byte(usual("a")))
	for _, fields := range []string{
		"host: [::1]:80\r\nX-a: b\r\nx-A: c\t d \r\nConnection: Close\r\nContent-Length: 007\r\n",
		"Host: a\r\nContent-Length: 1\r\nPragma: no-cache\r\n\u00c4: b\r\n",
		"Host: a\r\nContent-Length: 1\r\nConnection: keep-alive\r\nConnection: close\r\n",
	} {
		f.Add([]byte("POST /usual HTTP/1.1\r\n" + fields + "\r\n"))
	}
	known := map[string]string{"/usual": "/usual"}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, not := endOfHead(b)
		if end == 0 || not {
			return
		}
		h, ok := parse(b[:end], known)
		if !ok {
			return
		}
		all := append(bytes.Clone(b[:end]), make([]byte, h.length)...)
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(all)))
		if err != nil {
			t.Fatalf("%q: net/http refuses the head: %v", b[:end], err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != h.length || r.ContentLength != h.length {
			t.Errorf("%q: net/http reads a body of %d bytes (%v), this package %d", b[:end], n, err, h.length)
		}
		if r.Method != http.MethodPost || r.RequestURI != h.path || r.Proto != "HTTP/1.1" || r.Host != h.host ||
			r.Close != h.last || len(r.TransferEncoding) > 0 {
			t.Errorf("%q: net/http reads %s %s %s %s %v, this package %+v",
				b[:end], r.Method, r.RequestURI, r.Proto, r.Host, r.Close, h)
		}
		delete(r.Header, "Cache-Control") // net/http adds this field beside Pragma: no-cache
		delete(h.header, "Cache-Control")
		if !reflect.DeepEqual(r.Header, h.header) {
			t.Errorf("%q: net/http reads header %q, this package %q", b[:end], r.Header, h.header)
		}
	})
}
