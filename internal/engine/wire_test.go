package engine

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// script serves one connection of a scripted server. The pipe has no buffer: each side waits for the
// other. ctx ends with the test.
type script func(ctx context.Context, nc net.Conn, r *bufio.Reader)

// piped makes a client. The nth script serves its nth connection. Further connections are refused.
func piped(t *testing.T, o Options, scripts ...script) *Client {
	dials := 0
	o.URL = "http://engine:8000"
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		if dials++; dials > len(scripts) {
			return nil, errors.New("refused")
		}
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			scripts[dials-1](t.Context(), far, bufio.NewReader(far))
		}()
		return near, nil
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answers serves one request for each answer, and writes the answer in the given pieces.
func answers(all ...[]string) script {
	return func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
		for _, pieces := range all {
			if readRequest(r) != nil {
				return
			}
			for _, piece := range slices.DeleteFunc(pieces, func(s string) bool { return s == "" }) {
				io.WriteString(nc, piece)
			}
		}
	}
}

var post = &Request{Method: "POST", Path: "/v1/completions", ID: name, Body: []byte(`{"prompt":[1,2]}`)}

// ask sends post and reads the whole answer.
func ask(ctx context.Context, c *Client) (int, string, error) {
	resp, err := c.Do(ctx, post)
	if err != nil {
		return 0, "", err
	}
	defer resp.Close()
	body, err := resp.ReadAll(1 << 20)
	return resp.Status, string(body), err
}

const ok200 = "HTTP/1.1 200 OK\r\nX-Request-Id: " + name + "\r\n"

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []string
		status int
		body   string
		reused bool
	}{
		{"length", []string{ok200 + "Content-Length: 5\r\n\r\nhello"}, 200, "hello", true},
		{"length, byte by byte", strings.Split(ok200+"Content-Length: 5\r\n\r\nhello", ""), 200, "hello", true},
		{
			"the same length twice",
			[]string{ok200 + "Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello"},
			200,
			"hello", true,
		},
		{
			"chunks",
			[]string{ok200 + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\n\r\n"},
			200, "hello", true,
		},
		{"chunks, byte by byte", strings.Split(
			ok200+"transfer-encoding: CHUNKED\r\n\r\n3\r\nhel\r\n02\r\nlo\r\n000\r\nTrailer: v\r\n\r\n", "",
		), 200, "hello", true},
		{"until close", []string{ok200 + "\r\nhello", " there"}, 200, "hello there", false},
		{"HTTP/1.0", []string{"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"}, 200, "hello", false},
		{
			"connection: close",
			[]string{ok200 + "Connection: x, Close\r\nContent-Length: 5\r\n\r\nhello"},
			200,
			"hello", false,
		},
		{"interim answers", []string{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" +
			ok200 + "Content-Length: 1\r\n\r\nx"}, 200, "x", true},
		{"204", []string{"HTTP/1.1 204 No Content\r\nX-Request-Id: " + name + "\r\n\r\n"}, 204, "", true},
		{
			"304 with a length",
			[]string{"HTTP/1.1 304 Not Modified\r\nX-Request-Id: " + name + "\r\nContent-Length: 5\r\n\r\n"},
			304, "", true,
		},
		{
			"204 with chunks",
			[]string{"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},
			204, "",
			false,
		},
		{"empty", []string{ok200 + "Content-Length: 0\r\n\r\n"}, 200, "", true},
		{
			"bytes behind the end",
			[]string{ok200 + "Content-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny"},
			200, "x",
			false,
		},
		{
			"no reason",
			[]string{"HTTP/1.1 503\r\nX-Request-Id: " + name + "\r\nContent-Length: 0\r\n\r\n"},
			503, "", true,
		},
		{"an exception in the engine", []string{"HTTP/1.1 500 X\r\nContent-Length: 1\r\n\r\nx"}, 500, "x", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := []string{ok200 + "Content-Length: 4\r\n\r\nmore"}
				first, second := answers(tt.pieces), answers(again)
				if tt.reused {
					first, second = answers(tt.pieces, again), answers()
				}
				c := piped(t, Options{}, first, second)
				status, body, err := ask(t.Context(), c)
				if status != tt.status || body != tt.body || err != nil {
					t.Fatalf("got %d %q %v, want %d %q", status, body, err, tt.status, tt.body)
				}
				if _, body, err = ask(t.Context(), c); body != "more" || err != nil {
					t.Fatalf("next request: got %q, %v; want more", body, err)
				}
			})
		})
	}
}

// TestMalformed checks that the client refuses an ambiguous answer: the request fails, and the client does
// not reuse the connection.
func TestMalformed(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"two lengths", ok200 + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "contradict"},
		{"list of lengths", ok200 + "Content-Length: 5, 5\r\n\r\nhello", "not a number"},
		{"signed length", ok200 + "Content-Length: +5\r\n\r\nhello", "not a number"},
		{"huge length", ok200 + "Content-Length: 9999999999999999999\r\n\r\nhello", "not a number"},
		{"no length", ok200 + "Content-Length:\r\n\r\nhello", "not a number"},
		{"length and chunks", ok200 + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "beside"},
		{"chunks and length", ok200 + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "beside"},
		{
			"chunked twice", ok200 + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"not chunked, once",
		},
		{"gzip, chunked", ok200 + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "not chunked, once"},
		{"chunked, with a vertical tab", ok200 + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", "control"},
		{"chunked under HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0"},
		{"compressed", ok200 + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", "encoded"},
		{"folded line", ok200 + "X: a\r\n b\r\n\r\n", "no name"},
		{"space before the colon", ok200 + "Content-Length : 5\r\n\r\nhello", "no name"},
		{"no colon", ok200 + "Content-Length\r\n\r\nhello", "no name"},
		{"no name", ok200 + ": 5\r\n\r\nhello", "no name"},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "CRLF"},
		{"one bare line feed", ok200 + "X: y\nContent-Length: 0\r\n\r\n", "CRLF"},
		{"bare carriage return", ok200 + "X: y\rContent-Length: 0\r\n\r\n", "control"},
		{"NUL", ok200 + "X: \x00\r\n\r\n", "control"},
		{"another protocol", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1"},
		{"no status", "HTTP/1.1\r\n\r\n", "HTTP/1"},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", "not a number"},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", "status line"},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", "status line"},
		{"something before the head", "\r\n" + ok200 + "\r\n", "begin"},
		{"switching protocols", "HTTP/1.1 101 Switching\r\n\r\n", "interim"},
		{"interim answers for ever", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim), "interim"},
		{"head without end", ok200 + strings.Repeat("X: y\r\n", 5000), "larger than the limit"},
		{"cut head", ok200 + "Content-Le", "cut off"},
		{"nothing", "", "unexpected EOF"},
		{"cut body", ok200 + "Content-Length: 6\r\n\r\nhello", "unexpected EOF"},
		{"cut chunk", ok200 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", "unexpected EOF"},
		{"chunks without end", ok200 + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "unexpected EOF"},
		{"chunk of no size", ok200 + "Transfer-Encoding: chunked\r\n\r\n\r\nhello", "no size"},
		{"chunk size with a sign", ok200 + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", "no size"},
		{
			"chunk size with 0x", ok200 + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "hexadecimal",
		},
		{
			"chunk size with a space", ok200 + "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
			"hexadecimal",
		},
		{"chunk size beyond 60 bits", ok200 + "Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\n", "too long"},
		{
			"chunk size with a bare line feed", ok200 + "Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
			"hexadecimal",
		},
		{"chunk longer than its size", ok200 + "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", "CRLF"},
		{
			"extension without end", ok200 + "Transfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("x", 2000),
			"too long",
		},
		{
			"extension with a line feed", ok200 + "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
			"control",
		},
		{"trailer without a name", ok200 + "Transfer-Encoding: chunked\r\n\r\n0\r\n x\r\n\r\n", "no name"},
		{
			"trailer without end",
			ok200 + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", 4000), "too long",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := piped(t, Options{}, answers([]string{tt.answer}),
					answers([]string{ok200 + "Content-Length: 4\r\n\r\nmore"}))
				_, _, err := ask(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), tt.want) || NotSent(err) {
					t.Errorf("got %v (not sent: %v), want an error with %q for a sent request",
						err, NotSent(err), tt.want)
				}
				if _, body, err := ask(t.Context(), c); body != "more" || err != nil {
					t.Errorf("next request: got %q, %v; want more", body, err)
				}
			})
		})
	}
}

func TestHeadHasNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{},
			answers([]string{ok200 + "Content-Length: 5\r\n\r\n"}, []string{ok200 + "Content-Length: 4\r\n\r\nmore"}))
		resp, err := c.Do(t.Context(), &Request{Method: "HEAD", Path: "/", ID: name})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := resp.Next(); len(b) > 0 || err != io.EOF || resp.ContentLength != 5 {
			t.Errorf("got %q, %v, content length %d; want EOF and 5", b, err, resp.ContentLength)
		}
		resp.Close()
		if _, body, err := ask(t.Context(), c); body != "more" || err != nil {
			t.Errorf("next request: got %q, %v; want more", body, err)
		}
	})
}

func TestRequestAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got strings.Builder
		c := piped(t, Options{APIKey: "k"}, func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(bufio.NewReader(io.TeeReader(r, &got)))
			io.WriteString(nc, ok200+"Content-Length: 0\r\n\r\n")
		})
		resp, err := c.Do(t.Context(),
			&Request{Method: "POST", Path: "/p?q=1", ID: "é", Body: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		resp.Close()
		want := "POST /p?q=1 HTTP/1.1\r\nHost: engine:8000\r\nUser-Agent: tandem\r\nAccept-Encoding: identity\r\n" +
			"Authorization: Bearer k\r\nX-Request-Id: é\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" +
			"\r\n{}"
		if got.String() != want {
			t.Errorf("got request %q, want %q", got.String(), want)
		}
	})
}

func TestRefusesToSend(t *testing.T) {
	c := piped(t, Options{})
	for name, r := range map[string]*Request{
		"line feed in a value": {Method: "GET", Path: "/", Header: []Field{{"X", "a\r\nY: b"}}},
		"space in a name":      {Method: "GET", Path: "/", Header: []Field{{"X Y", "a"}}},
		"content length":       {Method: "GET", Path: "/", Header: []Field{{"Content-Length", "0"}}},
		"transfer encoding": {
			Method: "GET", Path: "/", Header: []Field{{"transfer-encoding", "chunked"}},
		},
		"host":                        {Method: "GET", Path: "/", Header: []Field{{"HOST", "x"}}},
		"space in the path":           {Method: "GET", Path: "/ HTTP/1.1"},
		"path without a slash":        {Method: "GET", Path: "*"},
		"no method":                   {Path: "/"},
		"control in the content type": {Method: "GET", Path: "/", ContentType: "a\nb"},
	} {
		if _, err := c.Do(t.Context(), r); !NotSent(err) || Unreachable(err) || !errors.Is(err, ErrRequest) {
			t.Errorf("%s: got %v, want ErrRequest, not sent, and not unreachable",
				name, err)
		}
	}
}

// TestNext checks that each call returns all bytes of the body that have arrived.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, answers([]string{
			ok200 + "Transfer-Encoding: chunked\r\n\r\n", "3\r\none\r\n3\r\ntwo\r\n5\r\nth", "r", "ee\r",
			"\n4\r\nfour\r\n0\r\n\r\n",
		}))
		resp, err := c.Do(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		var got []string
		for {
			b, err := resp.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(b))
		}
		if want := []string{"onetwoth", "r", "ee", "four"}; !slices.Equal(got, want) || !resp.body.done {
			t.Errorf("got pieces %q, want %q and the end of the body", got, want)
		}
		if _, err := resp.Next(); err != io.EOF {
			t.Errorf("got %v from Next after the end, want EOF", err)
		}
	})
}

func TestReadAllLimit(t *testing.T) {
	for _, answer := range []string{
		ok200 + "Content-Length: 9\r\n\r\n", ok200 + "Transfer-Encoding: chunked\r\n\r\n9\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := piped(t, Options{}, answers([]string{answer, "123456789"}))
			resp, err := c.Do(t.Context(), post)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := resp.ReadAll(8); !errors.Is(err, ErrTooLarge) {
				t.Errorf("got %v from ReadAll(8) of 9 bytes, want ErrTooLarge", err)
			}
		})
	}
}

// TestCancel ends the context in each phase of a request. The call returns at once.
func TestCancel(t *testing.T) {
	hang := func(ctx context.Context, nc net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) }
	for _, tt := range []struct {
		name  string
		serve script
		dial  func(ctx context.Context, network, addr string) (net.Conn, error)
		phase Phase
		sent  bool
	}{
		{
			"dial", nil,
			func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, Dial,
			false,
		},
		{
			"write, nothing taken", func(ctx context.Context, nc net.Conn, _ *bufio.Reader) { <-ctx.Done() }, nil,
			Write, false,
		},
		{
			"write, half taken",
			func(ctx context.Context, nc net.Conn, _ *bufio.Reader) { nc.Read(make([]byte, 1)); <-ctx.Done() }, nil,
			Write, true,
		},
		{"head", hang, nil, Head, true},
		{"half a head", func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(r)
			io.WriteString(nc, ok200)
			hang(ctx, nc, r)
		}, nil, Head, true},
		{"body", func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(r)
			io.WriteString(nc, ok200+"Content-Length: 5\r\n\r\nhel")
			hang(ctx, nc, r)
		}, nil, Body, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := piped(t, Options{DialTimeout: time.Hour}, tt.serve)
				if tt.dial != nil {
					c.o.Dial = tt.dial
				}
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
				defer cancel()
				start := time.Now()
				_, _, err := ask(ctx, c)
				e, ok := errors.AsType[*Error](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) || e.Phase != tt.phase || e.Sent != tt.sent {
					t.Errorf("got %#v, want a deadline in phase %v, sent %v", err, tt.phase, tt.sent)
				}
				if took := time.Since(start); took != 7*time.Second {
					t.Errorf("got the error after %v, want 7s", took)
				}
				if len(c.idle.conns) > 0 {
					t.Error("the client keeps the connection, want that it does not")
				}
			})
		})
	}
}

func TestSetIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(r)
			io.WriteString(nc, ok200+"\r\n")
			for range 4 {
				time.Sleep(7 * time.Second)
				io.WriteString(nc, "x")
			}
			<-ctx.Done()
		})
		resp, err := c.Do(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		resp.SetIdle(8 * time.Second)
		start := time.Now()
		body, err := resp.ReadAll(100)
		if string(body) != "xxxx" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %q, %v from ReadAll; want xxxx and a deadline", body, err)
		}
		if took := time.Since(start); took != 37*time.Second {
			t.Errorf("got the error after %v, want 4 x 7s + 8s + 1s", took)
		}
	})
}

func TestIdleConnectionsGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := time.Duration(0)
		start := time.Now()
		c := piped(t, Options{}, func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(r)
			io.WriteString(nc, ok200+"Content-Length: 1\r\n\r\nx")
			r.ReadByte()
			closed = time.Since(start)
		})
		if _, _, err := ask(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if closed != 4*time.Second {
			t.Errorf("the connection was closed after %v, want 4s", closed)
		}
	})
}

// In TestReusedConnectionDies, an engine closes the connection when the second request arrives. The client
// cannot know whether the engine saw that request.
func TestReusedConnectionDies(t *testing.T) {
	for _, idempotent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			first := func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
				answers([]string{ok200 + "Content-Length: 1\r\n\r\nx"})(ctx, nc, r)
				readRequest(r)
			}
			c := piped(t, Options{}, first, answers([]string{ok200 + "Content-Length: 1\r\n\r\ny"}))
			if _, _, err := ask(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			r := *post
			r.Idempotent = idempotent
			resp, err := c.Do(t.Context(), &r)
			if idempotent {
				if err != nil {
					t.Fatalf("idempotent request: got %v, want no error", err)
				}
				resp.Close()
				return
			}
			if e, ok := errors.AsType[*Error](err); !ok || !e.Sent || e.Phase != Head {
				t.Errorf("got %#v, want a sent request that failed at the head", err)
			}
		})
	}
}

// Stale is true only for a kept connection that ended because it was idle for too long.
func TestStale(t *testing.T) {
	const idle = 2 * time.Second
	for _, x := range []struct {
		name  string
		kept  bool
		after time.Duration // from the request to the end of the connection
		want  bool
	}{
		{"kept, too old meanwhile", true, 3 * time.Second, true},
		{"kept, ended at once", true, 0, false},
		{"new", false, 10 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := piped(t, Options{}, func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
				if x.kept {
					answers([]string{ok200 + "Content-Length: 1\r\n\r\nx"})(ctx, nc, r)
				}
				readRequest(r)
				time.Sleep(x.after)
			})
			if x.kept {
				if _, _, err := ask(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				time.Sleep(idle)
			}
			if _, _, err := ask(t.Context(), c); err == nil || Stale(err) != x.want {
				t.Errorf("%s: got error %v with Stale %v, want an error with Stale %v", x.name, err, Stale(err), x.want)
			}
		})
	}
}

// After the first byte of an answer, an idempotent request is not sent again, as the engine has received it.
func TestIdempotentIsNotSentAgainAfterAnAnswerBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, answers([]string{ok200 + "Content-Length: 1\r\n\r\nx"}, []string{"HTTP/1.1"}),
			answers([]string{ok200 + "\r\n"}))
		if _, _, err := ask(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		r := *post
		r.Idempotent = true
		if _, err := c.Do(t.Context(), &r); err == nil {
			t.Error("got no error, so the client sent the request again")
		}
	})
}

// If a connection accepts no bytes, the request was not delivered. The client replaces the connection.
func TestStaleConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, answers([]string{ok200 + "Content-Length: 1\r\n\r\nx"}),
			answers([]string{ok200 + "Content-Length: 1\r\n\r\ny"}))
		if _, _, err := ask(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, body, err := ask(t.Context(), c); body != "y" || err != nil {
			t.Errorf("got %q, %v; want y from a new connection", body, err)
		}
	})
}

// In TestEarlyAnswer, an engine refuses a body that is larger than any buffer and does not read it.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			r.ReadByte()
			io.WriteString(nc, "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
			<-ctx.Done()
		}
		c := piped(t, Options{}, refuse)
		resp, err := c.Do(t.Context(), &Request{Method: "POST", Path: "/", Body: make([]byte, 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		if body, err := resp.ReadAll(10); resp.Status != 413 || string(body) != "long" || err != nil {
			t.Errorf("got %d %q %v, want 413 long", resp.Status, body, err)
		}
		if len(c.idle.conns) > 0 {
			t.Error("the client keeps a connection with half a request, want that it does not")
		}
	})
}

func TestClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, answers([]string{ok200 + "Content-Length: 1\r\n\r\n", "x"}))
		resp, err := c.Do(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if body, err := resp.ReadAll(10); string(body) != "x" || err != nil {
			t.Errorf("running answer: got %q, %v; want x", body, err)
		}
		if len(c.idle.conns) > 0 {
			t.Error("a closed client keeps a connection, want none")
		}
		if _, err := c.Do(t.Context(), post); !NotSent(err) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want not sent because the client is closed", err)
		}
	})
}

func TestResponseAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, answers([]string{ok200 + "X: y\r\nContent-Length: 9\r\n\r\nhalf"}))
		resp, err := c.Do(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		resp.Close()
		resp.Close()
		if _, err := resp.Next(); err == nil || err == io.EOF {
			t.Errorf("got %v from Next after Close, want an error", err)
		}
		if got := resp.Header.Get("x"); got != "y" {
			t.Errorf("got header %q after Close, want y", got)
		}
	})
}

// A failure on this side does not make an engine unreachable: an ended context, a machine without free
// sockets, a closed client.
func TestOnlyTheEngineIsUnreachable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // when the caller cancels
		dial  error
		close bool
		want  bool
	}{
		{name: "refused", after: time.Hour, dial: syscall.ECONNREFUSED, want: true},
		{name: "no route", after: time.Hour, dial: syscall.EHOSTUNREACH, want: true},
		{name: "no answer to the dial", after: time.Hour, want: true},
		{name: "canceled before the dial", dial: syscall.ECONNREFUSED},
		{name: "canceled during the dial", after: time.Second},
		{
			name: "no file descriptors", after: time.Hour,
			dial: &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)},
		},
		{name: "closed", after: time.Hour, close: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Options{URL: "http://engine:8000", DialTimeout: 3 * time.Second, Dial: func(
				ctx context.Context, _, _ string,
			) (net.Conn, error) {
				if tt.dial == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, tt.dial
			}})
			if err != nil {
				t.Fatal(err)
			}
			if tt.close {
				c.Close()
			}
			ctx, leave := context.WithTimeout(t.Context(), tt.after)
			defer leave()
			if _, err := c.Do(ctx, post); !NotSent(err) || Unreachable(err) != tt.want {
				t.Errorf("%s: got error %v, unreachable %v; want %v", tt.name, err, Unreachable(err), tt.want)
			}
		})
	}
}

// NextWithin returns without data when its time is over. The answer continues, and its other limits still
// apply. The client reuses the connection.
func TestNextWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Options{}, func(ctx context.Context, nc net.Conn, r *bufio.Reader) {
			readRequest(r)
			io.WriteString(nc, ok200+"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
			time.Sleep(3 * time.Second)
			io.WriteString(nc, "1\r\nb\r\n")
			time.Sleep(500 * time.Millisecond)
			io.WriteString(nc, "1\r\nc\r\n0\r\n\r\n")
			readRequest(r)
			time.Sleep(time.Minute)
			io.WriteString(nc, ok200+"Content-Length: 1\r\n\r\nx")
			readRequest(r)
			io.WriteString(nc, ok200+"\r\ny")
			<-ctx.Done()
		})
		resp, err := c.Do(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		resp.SetIdle(8 * time.Second)
		start := time.Now()
		var said []string
		for {
			b, err := resp.NextWithin(time.Second)
			said = append(said, string(b))
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(said, "|"); got != "a|||b|c|" {
			t.Errorf("got %q, want a|||b|c|", got)
		}
		if took := time.Since(start); took != 3500*time.Millisecond {
			t.Errorf("got the end after %v, want 3.5s", took)
		}
		resp.Close()
		if _, body, err := ask(t.Context(), c); body != "x" || err != nil {
			t.Errorf("next request: got %q, %v; want x", body, err)
		}
		if resp, err = c.Do(t.Context(), post); err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		resp.SetIdle(8 * time.Second)
		start = time.Now()
		for _, want := range []string{"y", ""} {
			if b, err := resp.NextWithin(time.Second); string(b) != want || err != nil {
				t.Fatalf("got %q, %v from NextWithin; want %q", b, err, want)
			}
		}
		if _, err := resp.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v from Next, want a deadline", err)
		}
		if took := time.Since(start); took != (1125+9000)*time.Millisecond {
			t.Errorf("got the error after %v, want 1.125s and then 8s + 1s", took)
		}
	})
}
