package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// straying is an engine with correct answers. At the first byte of each later request on a connection, it
// sends its last answer once more. The client can notice this only after it has written the request.
func straying(t *testing.T, answer func(id string) string) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer nc.Close()
				last, r := "", bufio.NewReader(nc)
				for {
					if _, err := r.Peek(1); err != nil {
						return
					}
					io.WriteString(nc, last)
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					last = answer(req.Header.Get(idHeader))
					io.WriteString(nc, last)
				}
			}()
		}
	}()
	c, err := New(Options{URL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func wholeAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func streamed(events ...string) string {
	out := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, e := range events {
		out = fmt.Appendf(out, "%x\r\n%s\r\n", len(e), e)
	}
	return string(out) + "0\r\n\r\n"
}

// An engine sends a second answer after the client has checked the connection. No request may get this
// answer.
func TestAnswerToAnotherQuestion(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer func(id string) string
	}{
		{"whole", func(id string) string { return wholeAnswer(`{"id":"cmpl-` + id + `","choices":[]}`) }},
		{"indented", func(id string) string { return wholeAnswer("{\n  \"id\": \"cmpl-" + id + "\"\n}") }},
		{"generate", func(id string) string {
			return wholeAnswer(`{"request_id":"generate-tokens-` + id + `","choices":[]}`)
		}},
		{"stream", func(id string) string {
			return streamed(`data: {"id":"chatcmpl-`+id+`","choices":[]}`+"\n\n", "data: [DONE]\n\n")
		}},
		{"stream behind a comment", func(id string) string {
			return streamed(": wait\n\n", `data: {"id":"chatcmpl-`+id+`","choices":[]}`+"\n\n", "data: [DONE]\n\n")
		}},
		{"messages", func(id string) string {
			return streamed("event: message_start\ndata: " +
				`{"type":"message_start","message":{"id":"chatcmpl-` + id + `","role":"assistant"}}` + "\n\n")
		}},
		{"stream in small pieces", func(id string) string {
			return streamed(strings.Split(`data: {"id":"cmpl-`+id+`"}`+"\n\n", "")...)
		}},
		{"in the head", func(id string) string {
			return strings.Replace(wholeAnswer("x"), "\r\n", "\r\nx-request-id: "+id+"\r\n", 1)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := straying(t, row.answer)
			ask := func(id string) (string, error) {
				_, body, err := c.roundTrip(t.Context(), &Request{Method: "POST", Path: "/", ID: id})
				return string(body), err
			}
			first, err := ask("a1")
			if len(c.idle.conns) != 1 {
				t.Fatalf("got %q, %v, but the connection is not kept; want it kept, as the answer has the id", first, err)
			}
			if got, err := ask("a2"); !errors.Is(err, ErrAnother) || NotSent(err) || HungUp(err) {
				t.Errorf("got %q, %v; want ErrAnother", got, err)
			}
			want := strings.ReplaceAll(first, "a1", "a3")
			for range 3 { // the client keeps no connection to an engine that did this
				if got, err := ask("a3"); err != nil || got != want || len(c.idle.conns) > 0 {
					t.Errorf("next answer: got %q, %v, %d kept; want %q, none kept", got, err, len(c.idle.conns), want)
				}
			}
		})
	}
}

// A request gets its own connection if its answer cannot carry an id, or if the engine sends no ids.
func TestQuestionsWithoutAName(t *testing.T) {
	var asked atomic.Int32
	c := straying(t, func(string) string {
		return wholeAnswer(fmt.Sprintf(`{"id":"cmpl-0","tokens":[%d]}`, asked.Add(1)))
	})
	for i := range 6 {
		r := &Request{Method: "POST", Path: "/tokenize"}
		if i%2 == 1 {
			r.ID = "a1"
		}
		_, got, err := c.roundTrip(t.Context(), r)
		if want := fmt.Sprintf("[%d]", i+1); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("request %d: got %q, %v; want %s", i, got, err, want)
		}
	}
}

// An engine may put ids into its answers on some paths only, as vLLM does. A request whose answer has no id
// never uses a kept connection of a path with ids. If the heads of all answers have ids, all paths share
// connections.
func TestPathsWithAndWithoutNames(t *testing.T) {
	for _, row := range []struct {
		name    string
		inHeads bool
		dials   int32
	}{
		{"in bodies", false, 1 + 4 + 1}, // one for each path with ids, and one for each answer without an id
		{"in heads", true, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			var dials atomic.Int32
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				id := r.Header.Get(idHeader)
				if row.inHeads {
					w.Header().Set(idHeader, id)
				}
				if r.URL.Path == "/v1/responses" {
					id = "random"
				}
				fmt.Fprintf(w, `{"id":"x-%s"}`, id)
			}))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					dials.Add(1)
				}
			}
			srv.Start()
			defer srv.Close()
			c, err := New(Options{URL: srv.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 12 {
				path := []string{"/v1/completions", "/v1/responses", "/v1/chat/completions"}[i%3]
				r := &Request{Method: "POST", Path: path, ID: fmt.Sprint("a", i), Body: []byte("{}")}
				if _, body, err := c.roundTrip(t.Context(), r); err != nil {
					t.Errorf("%s: got %q, %v; want no error", path, body, err)
				}
			}
			if n := dials.Load(); n != row.dials {
				t.Errorf("got %d connections, want %d", n, row.dials)
			}
		})
	}
}

// An error may lack the request's id, also within a stream. The client does not reuse its connection.
func TestErrorsHaveNoName(t *testing.T) {
	const flat = `data: {"object":"error"}` + "\n\n"
	const said = `data: {"error": {"message": "Internal server error", "code": 500}}` + "\n\n"
	for _, row := range []struct{ name, answer, want string }{
		{"status", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", "{}"},
		{"event", streamed(said), said},
		{"event of an old version", streamed(flat), flat},
	} {
		t.Run(row.name, func(t *testing.T) {
			well := wholeAnswer(`{"id":"cmpl-` + name + `"}`)
			c := piped(t, Options{}, answers([]string{well}, []string{row.answer}))
			if _, _, err := ask(t.Context(), c); err != nil || len(c.idle.conns) != 1 {
				t.Fatalf("got %v, %d kept; want one kept connection", err, len(c.idle.conns))
			}
			if _, got, err := ask(t.Context(), c); got != row.want || err != nil || len(c.idle.conns) > 0 {
				t.Errorf("got %q, %v, %d kept; want %q, none kept", got, err, len(c.idle.conns), row.want)
			}
		})
	}
}
