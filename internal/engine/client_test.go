package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// name is a request id. The test servers repeat it in their answers, so the client keeps their connections.
const name = "q-1"

// send posts a request with the id name.
func send(ctx context.Context, c *Client, path string, body []byte) (int, []byte, error) {
	return c.roundTrip(ctx, &Request{Method: http.MethodPost, Path: path, ID: name, Body: body})
}

// namesQuestion adds the request's id to the head of the answer, as vLLM does with
// --enable-request-id-headers.
func namesQuestion(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get(idHeader); id != "" {
			w.Header().Set(idHeader, id)
		}
		h(w, r)
	}
}

// serve starts a net/http server and a client for it, and counts the connections. Each answer has the id of
// its request.
func serve(t *testing.T, o Options, h http.HandlerFunc) (*Client, *httptest.Server, *atomic.Int32) {
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(namesQuestion(h))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	o.URL = s.URL
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, s, &conns
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Query().Has("flush") {
		for _, b := range body {
			w.Write([]byte{b})
			http.NewResponseController(w).Flush()
		}
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.Write(body)
}

func TestKeepAlive(t *testing.T) {
	c, _, conns := serve(t, Options{}, echo)
	for i, path := range []string{"/", "/?flush", "/", "/?flush", "/"} {
		for _, size := range []int{0, 1, 100, bufferSize - 100, bufferSize, 1 << 20} {
			if size > 1000 && path == "/?flush" {
				continue
			}
			want := bytes.Repeat([]byte{'a' + byte(i)}, size)
			status, got, err := send(t.Context(), c, path, want)
			if status != 200 || !bytes.Equal(got, want) || err != nil {
				t.Fatalf("%s with %d bytes: got %d, %d bytes, %v; want the same bytes", path, size, status, len(got), err)
			}
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("got %d connections for successive requests, want 1", n)
	}
}

func TestConcurrent(t *testing.T) {
	c, _, conns := serve(t, Options{}, echo)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			want := strings.Repeat(fmt.Sprint(i), 3000)
			for range 50 {
				if _, got, err := send(t.Context(), c, "/", []byte(want)); string(got) != want || err != nil {
					t.Errorf("client %d: got %d bytes and %v, want %d bytes", i, len(got), err, len(want))
				}
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 16 {
		t.Errorf("got %d connections for 16 requests at a time, want at most 16", n)
	}
}

func TestConnectionClose(t *testing.T) {
	c, _, conns := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		echo(w, r)
	})
	for range 3 {
		if _, got, err := send(t.Context(), c, "/", []byte("x")); string(got) != "x" || err != nil {
			t.Fatalf("got %q, %v; want x", got, err)
		}
	}
	if n := conns.Load(); n != 3 {
		t.Errorf("got %d connections, want 3", n)
	}
}

// TestServerHangsUp closes idle connections, as uvicorn does. The client notices the close before it writes.
// So even a request that must not be sent twice succeeds.
func TestServerHangsUp(t *testing.T) {
	c, s, conns := serve(t, Options{}, echo)
	for range 3 {
		if _, _, err := send(t.Context(), c, "/", []byte("x")); err != nil {
			t.Fatal(err)
		}
		s.CloseClientConnections()
		waitDead(t, c)
	}
	if n := conns.Load(); n != 3 {
		t.Errorf("got %d connections, want 3", n)
	}
}

// waitDead waits until the client knows that its idle connections have ended.
func waitDead(t *testing.T, c *Client) {
	t.Helper()
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	for _, cn := range c.idle.conns {
		for cn.look() == peekNothing {
			runtime.Gosched()
		}
	}
}

// In TestBytesBehindAnAnswer, an engine sends two answers to one request. The next request must not get the
// second answer, however soon that request comes.
func TestBytesBehindAnAnswer(t *testing.T) {
	right := ok200 + "Content-Length: 5\r\n\r\nright"
	wrong := ok200 + "Content-Length: 5\r\n\r\nwrong"
	c, _, _ := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		nc, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(nc, right)
		runtime.Gosched()
		io.WriteString(nc, wrong)
	})
	for range 20 {
		if _, body, err := send(t.Context(), c, "/", []byte("x")); string(body) != "right" || err != nil {
			t.Fatalf("got %q, %v; want right", body, err)
		}
		waitDead(t, c)
	}
}

// corked keeps written bytes until it is uncorked, so that several TLS records arrive in one read.
type corked struct {
	net.Conn
	held []byte
	cork bool
}

func (c *corked) Write(b []byte) (int, error) {
	if c.cork {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	_, err := c.Conn.Write(append(c.held, b...))
	c.held = nil
	return len(b), err
}

// In TestRecordsBehindAnAnswer, the second answer comes over TLS. TLS reads ahead, so the socket is empty.
func TestRecordsBehindAnAnswer(t *testing.T) {
	secure := httptest.NewUnstartedServer(nil)
	secure.StartTLS()
	defer secure.Close()
	served := func(near net.Conn) {
		raw := &corked{Conn: near}
		defer raw.Close()
		nc := tls.Server(raw, secure.TLS)
		if _, err := http.ReadRequest(bufio.NewReader(nc)); err != nil {
			return
		}
		raw.cork = true
		io.WriteString(nc, ok200+"Content-Length: 5\r\n\r\nright")
		raw.cork = false
		io.WriteString(nc, ok200+"Content-Length: 5\r\n\r\nwrong")
		io.Copy(io.Discard, near)
	}
	c, err := New(Options{
		URL: secure.URL, TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go served(far)
			return near, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, body, err := send(t.Context(), c, "/", nil); string(body) != "right" || err != nil {
			t.Fatalf("got %q, %v; want right", body, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	c, _, _ := serve(t, Options{APIKey: "secret", Header: http.Header{"X-Fleet": {"a", "b"}}},
		func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Got"] = []string{
				r.Header.Get("Authorization"), strings.Join(r.Header["X-Fleet"], "+"), r.Header.Get("X-Request-Id"),
				r.Header.Get("Content-Type"),
			}
			w.WriteHeader(201)
		})
	resp, err := c.Do(t.Context(),
		&Request{Method: "POST", Path: "/", ID: "7", ContentType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	var got []string
	for k, v := range resp.Header.All() {
		if k == "X-Got" {
			got = append(got, v)
		}
	}
	if want := "Bearer secret,a+b,7,text/plain"; strings.Join(got, ",") != want || resp.Status != 201 {
		t.Errorf("got status %d and header %q, want 201 and %q", resp.Status, got, want)
	}
	if resp.Header.Get("date") == "" || resp.Header.Get("none") != "" {
		t.Errorf("got %q for date and %q for none, want a date and nothing",
			resp.Header.Get("date"), resp.Header.Get("none"))
	}
}

func TestHugeHead(t *testing.T) {
	c, _, _ := serve(t, Options{MaxHeaderBytes: 20 << 10}, func(w http.ResponseWriter, r *http.Request) {
		size := 18 << 10
		if r.URL.Path == "/more" {
			size = 22 << 10
		}
		w.Header().Set("X-Big", strings.Repeat("x", size))
	})
	if _, _, err := c.get(t.Context(), "/"); err != nil {
		t.Errorf("got %v for a head below the limit, want no error", err)
	}
	if _, _, err := c.get(t.Context(), "/more"); !errors.Is(err, errHeadTooLarge) {
		t.Errorf("got %v for a head above the limit, want errHeadTooLarge", err)
	}
}

// The server of TestRefusedBody answers 413 and does not read the body, which is larger than any socket
// buffer. Then the server waits, or closes the connection.
func TestRefusedBody(t *testing.T) {
	secure := httptest.NewUnstartedServer(nil)
	secure.StartTLS()
	defer secure.Close()
	for _, tt := range []struct{ hangUp, sealed bool }{{false, false}, {true, false}, {false, true}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := Options{URL: "http://" + ln.Addr().String()}
		if tt.sealed {
			o.URL = "https://" + ln.Addr().String()
			o.TLS = secure.Client().Transport.(*http.Transport).TLSClientConfig
			ln = tls.NewListener(ln, secure.TLS)
		}
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { refuseBody(ln, tt.hangUp, release) })
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		status, body, err := c.Post(t.Context(), "/", make([]byte, 64<<20))
		close(release)
		if status != 413 || string(body) != "long" || err != nil {
			t.Errorf("hanging up %v, TLS %v: got %d %q %v, want 413 long",
				tt.hangUp, tt.sealed, status, body, err)
		}
		wg.Wait()
		c.Close()
		ln.Close()
	}
}

func refuseBody(ln net.Listener, hangUp bool, release chan struct{}) {
	nc, err := ln.Accept()
	if err != nil {
		return
	}
	defer nc.Close()
	nc.Read(make([]byte, 10))
	io.WriteString(nc, "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
	if !hangUp {
		<-release
	}
}

func TestRefusedConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c, _ := New(Options{URL: "http://" + ln.Addr().String()})
	defer c.Close()
	if _, _, err := c.Post(t.Context(), "/", nil); !NotSent(err) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want connection refused and not sent", err)
	} else if !Unreachable(err) {
		t.Errorf("got %v, want an error for which Unreachable is true", err)
	}
}

func TestCancelOverTCP(t *testing.T) {
	arrived := make(chan struct{})
	c, _, _ := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		close(arrived)
		<-r.Context().Done() // the engine sees that the client left
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.Do(ctx, &Request{Method: "POST", Path: "/", Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	if b, err := resp.Next(); string(b) != "first" || err != nil {
		t.Fatalf("got %q, %v from Next; want first", b, err)
	}
	<-arrived
	if cn := resp.conn; cn.buf == nil {
		t.Error("the connection has no buffer, so the bytes of the last Next are not valid any more")
	}
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := resp.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from Next, want canceled", err)
	}
}

// TestWaitingStreamHoldsNoBuffer checks that a waiting stream has no read buffer. Otherwise ten thousand
// waiting streams would need much memory.
func TestWaitingStreamHoldsNoBuffer(t *testing.T) {
	release := make(chan struct{})
	c, _, _ := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		<-release
	})
	resp, err := c.Do(t.Context(), &Request{Method: "GET", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	if b, err := resp.Next(); string(b) != "first" || err != nil {
		t.Fatalf("got %q, %v from Next; want first", b, err)
	}
	resp.SetIdle(20 * time.Millisecond)
	_, err = resp.Next()
	if held := resp.conn; held != nil {
		t.Error("a failed response still has its connection, want none")
	}
	close(release)
	if err == nil {
		t.Error("got no error from Next, want a timeout")
	}
}

func TestTryReadGivesItsBufferBack(t *testing.T) {
	url := answerer(t, "")
	c, _ := New(Options{URL: url})
	defer c.Close()
	cn, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cn.close()
	cn.raw.Control(func(fd uintptr) {
		if cn.tryRead(fd) || cn.buf != nil {
			t.Error("tryRead without data keeps its buffer, want that it gives the buffer back")
		}
	})
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(namesQuestion(echo))
	defer s.Close()
	c, err := New(Options{URL: s.URL, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, size := range []int{10, 1 << 20} {
		want := bytes.Repeat([]byte{'x'}, size)
		if _, got, err := send(t.Context(), c, "/", want); !bytes.Equal(got, want) || err != nil {
			t.Errorf("got %d bytes, %v; want the %d bytes that were sent", len(got), err, size)
		}
	}
	if n := len(c.idle.conns); n != 1 || !c.idle.conns[0].sealed {
		t.Errorf("got %d idle connections, want one over TLS", n)
	}
	plain, _ := New(Options{URL: s.URL})
	defer plain.Close()
	if _, _, err := plain.Post(t.Context(), "/", nil); !NotSent(err) {
		t.Errorf("got %v for an unknown authority, want not sent", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{
		{URL: "engine:8000"},
		{URL: "ftp://engine"},
		{URL: "http://"},
		{URL: "http://u:p@engine"},
		{URL: "http://engine?x=1"},
		{URL: "http://a b"},
		{URL: "http://engine", APIKey: "a\nb"},
		{URL: "http://engine", Header: http.Header{"Host": {"x"}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("New accepted %+v, want an error", o)
		}
	}
	c, err := New(Options{URL: "https://[::1]/base/"})
	if err != nil || c.addr != "[::1]:443" || c.host != "::1" || c.prefix != "/base" {
		t.Errorf("got %+v, %v; want port 443, the host without brackets and the prefix /base", c, err)
	}
}

// TestAllocations limits the allocations of a request to the response, its head, and the watch of its
// context.
func TestAllocations(t *testing.T) {
	url := answerer(t, smallAnswer)
	c, _ := New(Options{URL: url})
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := testing.AllocsPerRun(200, func() {
		resp, err := c.Do(ctx, post)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = resp.Next()
		}
		resp.Close()
	})
	if got > 5 {
		t.Errorf("got %v allocations for each request, want at most 5", got)
	}
}

// The client calls Request.Last just before it sends, because parts of the request may have expired while
// the connection was opened.
func TestLastMomentForbids(t *testing.T) {
	for _, idle := range []bool{false, true} {
		var served atomic.Int32
		c, _, _ := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			echo(w, r)
		})
		if idle {
			if _, _, err := send(t.Context(), c, "/", nil); err != nil {
				t.Fatal(err)
			}
			served.Store(0)
		}
		tooLate := errors.New("too late")
		_, err := c.Do(t.Context(),
			&Request{Method: "POST", Path: "/", ID: name, Body: []byte("x"), Last: func() error { return tooLate }})
		if !errors.Is(err, tooLate) || !NotSent(err) || served.Load() != 0 {
			t.Errorf("idle connection %v: got error %v, not sent %v, served %d; want too late, true, 0",
				idle, err, NotSent(err), served.Load())
		}
		resp, err := c.Do(t.Context(),
			&Request{Method: "POST", Path: "/", ID: name, Body: []byte("x"), Last: func() error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		resp.Close()
	}
}

// In TestLateReaderTrustsNoConnection, the client reads an answer so late that the engine has closed the
// connection meanwhile. This happens after a pause of the client's process. For the client the connection has
// just become idle, but for the engine it has been idle for long.
func TestLateReaderTrustsNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for _, body := range []string{"x", "y"} {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(nc))
			io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"+body)
			nc.Close()
		}
	}()
	c, err := New(Options{URL: "http://" + l.Addr().String(), IdleTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := &Request{Method: "POST", Path: "/"}
	late, err := c.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(c.o.IdleTimeout + 10*time.Millisecond)
	if _, err := late.ReadAll(10); err != nil {
		t.Fatal(err)
	}
	next, err := c.Do(t.Context(), r)
	if err != nil {
		t.Fatalf("got %v, want that the client does not send on a connection that the engine has closed", err)
	}
	defer next.Close()
	if body, err := next.ReadAll(10); string(body) != "y" || err != nil {
		t.Errorf("got %q, %v; want y", body, err)
	}
}
