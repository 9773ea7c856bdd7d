package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// served runs a handler of the front behind a real server, and returns what a client receives after it has
// closed its sending direction.
func served(t *testing.T, serve func(context.Context, *request) *failure) string {
	cfg := config.Default()
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: "http://127.0.0.1:1"}}
	o, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(o.front().handle("/v1/completions", serve))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	heard, _ := io.ReadAll(c)
	return string(heard)
}

// On a real connection the fast HTTP/1.1 server reads usual requests first. An unknown path on the same
// connection is counted as on the other server.
func TestUnknownPathsAreCountedOnEitherServer(t *testing.T) {
	cfg := config.Default()
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: "http://127.0.0.1:1"}}
	o, err := New(cfg, Options{NoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Serve(ctx, Listeners{Front: ln}, http.NotFoundHandler()) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	for _, r := range []struct {
		request string
		want    int
	}{
		{"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]", 400},
		{"PUT /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405},
		{"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n", 404},
	} {
		fmt.Fprint(c, r.request)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != r.want {
			t.Errorf("%.20s: status %d %v, want %d", r.request, resp.StatusCode, err, r.want)
		}
	}
	c.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	metrics := httptest.NewRecorder()
	o.Admin().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for outcome, path := range map[string]string{
		"bad_request": "/v1/completions", "unknown_path": otherPath, "unknown_method": otherPath,
	} {
		if line := fmt.Sprintf(`mode="none",model="",outcome=%q,path=%q} 1`, outcome, path); !strings.Contains(
			metrics.Body.String(), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// To the server, a client that closed only its sending direction looks like one that left. It must not
// receive an empty answer with status 200.
func TestHalfClosedClientHearsNoEmptyAnswer(t *testing.T) {
	heard := served(t, func(ctx context.Context, q *request) *failure {
		if _, f := q.body(); f != nil {
			return f
		}
		<-ctx.Done()
		return goneFailure(ctx, site{phase: "decode"})
	})
	if heard != "" {
		t.Errorf("the client received %q, want nothing", heard)
	}
}

// A stream that ends because its client seems to have left must not look complete either.
func TestHalfClosedClientHearsNoEndOfStream(t *testing.T) {
	heard := served(t, func(ctx context.Context, q *request) *failure {
		if _, f := q.body(); f != nil {
			return f
		}
		if f := q.w.events([]byte("data: {}\n\n"), 1, nil); f != nil {
			return f
		}
		<-ctx.Done()
		return goneFailure(ctx, site{phase: "stream"})
	})
	if !strings.Contains(heard, "data: {}") || strings.HasSuffix(heard, "0\r\n\r\n") {
		t.Errorf("the client received %q, want the event without an end of the body", heard)
	}
}

// The timer of a phase may fire just after the phase has ended. That must not count as a client that left.
func TestLateClockIsNoClientThatLeft(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errPhaseTimeout)
	f := goneFailure(ctx, site{phase: "handoff"})
	if f.reply.status != http.StatusGatewayTimeout || f.owner() != ownerRouter {
		t.Errorf("%+v", f)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(nil)
	if f := goneFailure(ctx, site{phase: "handoff"}); f.reply.status != clientGone {
		t.Errorf("%+v", f)
	}
}

// silentClient sends p and never reads the answer.
func (w *world) silentClient(p prompt) net.Conn {
	w.asked++
	c, err := w.net.Dial(w.t.Context(), "tcp", "front:80")
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", p.path, len(p.body), p.body)
	return c
}

// The router drops a client that does not read after timeouts.client_write, whatever the answer is.
func TestClientsThatDoNotReadAreLeft(t *testing.T) {
	big := `{"error":{"message":"` + strings.Repeat("x", 8<<20) + `","code":400}}`
	for name, p := range map[string]prompt{
		"an error": completion(false), "a passed error": post("/v1/embeddings", `{"model":"sim","input":"a"}`),
	} {
		in(t, setup{}, func(w *world) {
			for _, e := range append(append([]*simulated{}, w.p...), w.d...) {
				for range 3 {
					w.wire.scripted(e.addr, answerOf(400, "application/json", "", big))
				}
				fail(400)(w, e)
			}
			c := w.silentClient(p)
			defer c.Close()
			time.Sleep(w.cfg.Timeouts.ClientWrite + time.Second)
			if n := w.o.InFlight(); n != 0 {
				t.Errorf("%s that is not read: %d requests in flight, want 0", name, n)
			}
		})
	}
}

// A client that reads slowly gets the whole of a large answer: timeouts.client_write limits one write, and
// an answer takes many.
func TestSlowClientsGetLargeAnswers(t *testing.T) {
	big := `{"object":"list","data":[{"embedding":"` + strings.Repeat("x", 8<<20) + `"}]}`
	p := post("/v1/embeddings", `{"model":"sim","input":"a"}`)
	in(t, setup{}, func(w *world) {
		for _, e := range w.d {
			w.wire.scripted(e.addr, answerOf(200, "application/json", "", big))
		}
		c := w.silentClient(p)
		defer c.Close()
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, part := 0, make([]byte, 64<<10)
		for err == nil {
			var n int
			n, err = io.ReadFull(resp.Body, part)
			got += n
			time.Sleep(time.Second)
		}
		if got != len(big) {
			t.Fatalf("received %d of %d bytes after %v: %v", got, len(big), time.Since(began), err)
		}
		if took := time.Since(began); took < 2*w.cfg.Timeouts.ClientWrite {
			t.Errorf("it took only %v: this tests too little", took)
		}
	})
}

// over2 sends p to the front over HTTP/2.
func (w *world) over2(p prompt) *heard {
	ln, err := w.net.Listen("tcp", "front2:80")
	if err != nil {
		w.t.Fatal(err)
	}
	server := w.o.server(w.t.Context(), w.o.Front(), w.cfg)
	server.Protocols = new(http.Protocols)
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(ln)
	defer server.Close()
	through := &http.Transport{DialContext: w.net.Dial, Protocols: server.Protocols, DisableCompression: true}
	defer through.CloseIdleConnections()
	before := w.front
	defer func() { w.front = before }()
	w.front = &http.Client{Transport: through}
	w.asked++
	return w.send(w.t.Context(), "front2:80", p)
}

// A stream may pause for longer than timeouts.client_write. This holds over HTTP/2 too, where a write
// deadline is a timer that ends the stream.
func TestStreamsPauseLongerThanAWriteMayTake(t *testing.T) {
	slow := func(_ string, o *enginesim.Options) { o.Core.Cost.D0 = 2 }
	s := setup{engine: slow, config: func(c *config.Config) {
		c.Timeouts.ClientWrite, c.Timeouts.DecodeFirst = time.Second, time.Minute
	}}
	for _, p := range []prompt{
		{
			path: "/v1/completions",
			body: `{"model":"sim","max_tokens":4,"temperature":0,` + streaming(true) + `"prompt":"a b c"}`,
		},
		{
			path: "/v1/completions",
			body: `{"model":"sim","max_tokens":4,"temperature":0,` + streaming(true) + `"prompt":["a b c"]}`,
		},
		post("/v1/responses",
			`{"model":"sim","stream":true,"input":"a b c","max_output_tokens":4,"temperature":0,"truncation":"auto"}`),
	} {
		in(t, s, func(w *world) {
			got, want := w.over2(p), w.right(p)
			if got.err != nil || got.status != 200 || got.text != want.text || len(got.events) != len(want.events) {
				t.Errorf("%s: %d %v %q, want %q", p.path, got.status, got.err, got.raw, want.raw)
			}
		})
	}
}

// The engine of an unsplit stream falls silent. The stream ends with an error event, although more time
// than timeouts.client_write has passed since its last write.
func TestPassedStreamEndsWithItsError(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Timeouts.ClientWrite = time.Second }}, func(w *world) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "stall_stream", After: 4})(w, d)
		}
		got := w.ask(post(
			"/v1/responses",
			`{"model":"sim","stream":true,"input":"a b c","max_output_tokens":30,"temperature":0,"truncation":"auto"}`,
		))
		if got.err != nil || len(got.events) == 0 ||
			!strings.Contains(got.events[len(got.events)-1], `"type":"error"`) {
			t.Errorf("%v %q", got.err, got.raw)
		}
	})
}

// The memory for a body grows with the received bytes, not with the announced length.
func TestBodiesTakeMemoryAsTheyCome(t *testing.T) {
	for _, tt := range []struct {
		name            string
		sent            int
		announced, most int64
		whole           bool
	}{
		{"as announced", 300_000, 300_000, 1 << 20, true},
		{"of a first read", firstRead, firstRead, 1 << 20, true},
		{"empty", 0, 0, 1 << 20, true},
		{"not announced", 300_000, -1, 1 << 20, true},
		{"not announced, and too long", 300_000, -1, 100_001, true},
		{"one byte of many", 1, 64 << 20, 64<<20 + 1, false},
		{"half of many", 1 << 20, 64 << 20, 64<<20 + 1, false},
	} {
		sent := bytes.Repeat([]byte("0123456789"), tt.sent/10+1)[:tt.sent]
		got, err := readBody(iotest.HalfReader(bytes.NewReader(sent)), tt.announced, tt.most)
		if (err == nil) != tt.whole || !bytes.Equal(got, sent[:min(len(sent), int(tt.most))]) {
			t.Errorf("%s: %d bytes, %v", tt.name, len(got), err)
		}
		if cap(got) > max(firstRead, 2*len(got)) {
			t.Errorf("%s: %d bytes of memory for a body of %d", tt.name, cap(got), len(got))
		}
	}
	broken := errors.New("broken")
	if _, err := readBody(iotest.ErrReader(broken), 10, 11); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}
