package orchestrator

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// way is one way to serve a request, for one API.
type way struct {
	name string
	kind openai.Kind
	ask  func(stream bool) prompt
}

// ways are all ways: split, as a batch, whole to a decode replica with a plan, and passed to an engine
// unchanged.
var ways = []way{
	{"completions, split", openai.Completions, completion},
	{"completions, batch", openai.Completions, func(stream bool) prompt {
		return post("/v1/completions", `{"model":"sim","max_tokens":6,"temperature":0,`+streaming(stream)+
			`"prompt":["a b c","d e"]}`)
	}},
	{"completions, whole", openai.Completions, func(stream bool) prompt {
		return post("/v1/completions", `{"model":"sim","max_tokens":6,"temperature":0,`+plainStreaming(stream)+
			`"echo":true,"prompt":"a b c"}`)
	}},
	{"chat, split", openai.Chat, chat},
	{"chat, whole", openai.Chat, func(stream bool) prompt {
		return post("/v1/chat/completions", `{"model":"sim","max_tokens":6,"n":2,`+plainStreaming(stream)+
			`"temperature":1,"seed":3,"messages":[{"role":"user","content":"a b c"}]}`)
	}},
	{"messages, split", openai.Messages, messages},
	{"messages, passed", openai.Messages, func(stream bool) prompt {
		return post("/v1/messages", `{"model":"sim","max_tokens":6,"temperature":0,`+plainStreaming(stream)+
			`"mcp_servers":[{"name":"x"}],"messages":[{"role":"user","content":"a b c"}]}`)
	}},
	{"responses, split", openai.Responses, responses},
	{"responses, passed", openai.Responses, func(stream bool) prompt {
		return post("/v1/responses", `{"model":"sim","max_output_tokens":6,"temperature":0,`+plainStreaming(stream)+
			`"truncation":"auto","input":"a b c"}`)
	}},
}

// Events as engines write them: a piece of content, and errors by their code.
var generatedEvent = map[openai.Kind]string{
	openai.Completions: `{"id":"cmpl-x","object":"text_completion","created":1,"model":"sim",` +
		`"choices":[{"index":0,"text":"x","finish_reason":null}]}`,
	openai.Chat:      strings.Replace(roleEvent, `"content":""`, `"content":"x"`, 1),
	openai.Messages:  `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`,
	openai.Responses: `{"type":"response.output_text.delta","sequence_number":1,"delta":"x"}`,
}

func errorOf(kind openai.Kind, code int) string {
	typ := map[int]string{400: "invalid_request_error", 500: "api_error"}[code]
	switch kind {
	case openai.Messages:
		return `{"type":"error","error":{"type":"` + typ + `","message":"KV load failure"}}`
	case openai.Responses:
		return fmt.Sprintf(`{"type":"error","code":%d,"message":"KV load failure","sequence_number":2}`, code)
	}
	return strings.Replace(errorEvent, "500", fmt.Sprint(code), 1)
}

// logged keeps the lines of a log. Safe for concurrent use.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// of returns the lines with this message.
func (l *logged) of(message string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, `msg="`+message+`"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// forwarded returns the number of stream events that clients got, as /metrics counts them.
func (w *world) forwarded() (n int) {
	rec := httptest.NewRecorder()
	w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if value, ok := strings.CutPrefix(line, "tandem_stream_events_total "); ok {
			if _, err := fmt.Sscan(value, &n); err != nil {
				w.t.Error(err)
			}
		}
	}
	return n
}

// eachWay runs story once for each way, in a new world with ejection at the first failure, no retries and
// response headers.
func eachWay(t *testing.T, streams []bool, story func(w *world, by way, stream bool, log *logged)) {
	t.Helper()
	for _, by := range ways {
		for _, stream := range streams {
			t.Run(fmt.Sprintf("%s/stream=%v", by.name, stream), func(t *testing.T) {
				log := &logged{}
				s := setup{
					config: func(c *config.Config) {
						atOnce(c)
						nothingGoesOn(c)
						c.Retry.Attempts, c.Response.Headers = 1, true
					},
					options: func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) },
				}
				in(t, s, func(w *world) { story(w, by, stream, log) })
			})
		}
	}
}

// headersOf returns the headers that all answers have in common, without dates and ids.
func headersOf(got *heard) map[string]string {
	out := map[string]string{}
	for _, key := range []string{"Content-Type", "Cache-Control", "X-Accel-Buffering"} {
		out[key] = got.header.Get(key)
	}
	return out
}

// An answer has the same headers and counts whichever way it was served.
func TestAnswersLookTheSameWhicheverWayTheyCame(t *testing.T) {
	want := map[bool]map[string]string{
		true: {
			"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
		},
		false: {"Content-Type": "application/json", "Cache-Control": "", "X-Accel-Buffering": ""},
	}
	eachWay(t, []bool{true, false}, func(w *world, by way, stream bool, log *logged) {
		got := w.ask(by.ask(stream))
		if got.status != 200 || got.text == "" || got.err != nil {
			w.t.Fatalf("%d %v %s", got.status, got.err, got.raw)
		}
		if h := headersOf(got); fmt.Sprint(h) != fmt.Sprint(want[stream]) {
			w.t.Errorf("headers %v, want %v", h, want[stream])
		}
		if length := got.header.Get("Content-Length"); (length == fmt.Sprint(len(got.raw))) == stream {
			w.t.Errorf("Content-Length is %q for %d bytes", length, len(got.raw))
		}
		rec := w.o.Record(got.header.Get("X-Tandem-Decision"))
		if rec == nil || got.header.Get("X-Tandem-Mode") != rec.Mode {
			w.t.Errorf("the headers lack the decision: %v", got.header)
		}
		if n := strings.Count(got.raw, "\n\n"); stream && w.forwarded() != n {
			w.t.Errorf("counted %d events of %d", w.forwarded(), n)
		}
		if n := w.count("tandem_requests_total", "ok"); n != 1 {
			w.t.Errorf("%d requests ended well, want 1", n)
		}
		w.blamed(0, 0)
	})
}

// brokenStream is a way in which a stream fails, with the expected results.
type brokenStream struct {
	name   string
	says   func(openai.Kind) []string // the events of the engine; then the connection is cut
	clean  bool                       // the answer ends properly instead
	status int
	kind   string
	error  string // the message that the client reads
	log    string // the log message; "" means none
	blamed bool
	loads  bool // in a split request the pair may be the cause; one failure does not eject a pair
}

var breaks = []brokenStream{
	{
		name: "cut behind content", says: func(k openai.Kind) []string { return []string{generatedEvent[k]} },
		status: 200, kind: "broken", error: "The answer could not be finished: stream broken.",
		log: "stream broke off", blamed: true,
	},
	{
		name:   "an error behind content",
		says:   func(k openai.Kind) []string { return []string{generatedEvent[k], errorOf(k, 500)} },
		status: 200, kind: "error_event", error: "KV load failure", log: "stream broke off", blamed: true,
	},
	{
		name:   "an error behind content that is the client's",
		says:   func(k openai.Kind) []string { return []string{generatedEvent[k], errorOf(k, 400)} },
		status: 200, kind: "error_event", error: "KV load failure",
	},
	{
		name:   "an error instead of content",
		says:   func(k openai.Kind) []string { return []string{errorOf(k, 500)} },
		status: 500, kind: "error_event", error: "KV load failure", log: "request failed",
		blamed: true, loads: true,
	},
	{
		name:   "an error instead of content that is the client's",
		says:   func(k openai.Kind) []string { return []string{errorOf(k, 400)} },
		status: 400, kind: "error_event", error: "KV load failure",
	},
	{
		name: "cut before content", says: func(openai.Kind) []string { return nil },
		status: 502, kind: "broken", error: "The decode replica broke off before it answered.",
		log: "request failed", blamed: true,
	},
}

// A stream that fails has the same form, log line, count and blame whichever way it was served.
func TestStreamsBreakTheSameWhicheverWayTheyCame(t *testing.T) {
	for _, broken := range breaks {
		t.Run(broken.name, func(t *testing.T) {
			eachWay(t, streamed, func(w *world, by way, _ bool, log *logged) {
				raw := streamOf(broken.says(by.kind)...)
				if !broken.clean {
					raw = strings.TrimSuffix(raw, "0\r\n\r\n")
				}
				for _, d := range w.d {
					w.wire.scripted(d.addr, raw)
					w.wire.scripted(d.addr, raw)
				}
				got := w.ask(by.ask(true))
				broken.check(w, by, got, log)
			})
		})
	}
}

// check compares what the client got, the log, and the metrics with the expectation.
func (b *brokenStream) check(w *world, by way, got *heard, log *logged) {
	if got.status != b.status || got.err != nil || strings.Count(got.raw, b.error) != 1 {
		w.t.Errorf("the client got %d %v %s", got.status, got.err, got.raw)
	}
	marks := 0
	if b.status == 200 && by.kind.EndMark() != "" {
		marks = 1
	}
	if got.dones != marks || marks > 0 && !strings.HasSuffix(got.raw, by.kind.EndMark()) {
		w.t.Errorf("%d end marks, want %d: %s", got.dones, marks, got.raw)
	}
	if n := strings.Count(got.raw, "\n\n"); w.forwarded() != n {
		w.t.Errorf("counted %d events of %d", w.forwarded(), n)
	}
	if n := w.count("tandem_requests_total", b.kind); n != 1 {
		w.t.Errorf("%d requests ended with %s, want 1", n, b.kind)
	}
	for _, message := range []string{"stream broke off", "request failed"} {
		lines := log.of(message)
		if want := b.log == message; want != (len(lines) == 1) || len(lines) > 1 {
			w.t.Errorf("message %q is logged as %q, want logged: %v", message, lines, want)
		}
		named := func(line string) bool {
			id := " id=" + got.header.Get("X-Request-Id") + " "
			at, kind := " replica=d", " kind="+b.kind+" "
			return strings.Contains(line, id) && strings.Contains(line, at) && strings.Contains(line, kind)
		}
		if !slices.ContainsFunc(lines, named) && len(lines) > 0 {
			w.t.Errorf("%q lacks the id, the replica or the kind", lines)
		}
	}
	want := b.blamed && !(b.loads && w.count("tandem_requests_total", "split") > 0)
	// Both prompts of a batch may fail before one of them ends the other. Two failures eject a pair.
	chance := b.loads && strings.HasSuffix(by.name, "batch")
	if n := w.count("tandem_ejections_total", ""); n > 0 != want && !chance {
		w.t.Errorf("%d ejections, want some: %v", n, want)
	}
	w.silent(got)
}

// A client that leaves during a stream causes no ejection and no error in the log.
func TestClientsLeaveTheSameWhicheverWayTheirAnswerComes(t *testing.T) {
	eachWay(t, streamed, func(w *world, by way, _ bool, log *logged) {
		got := w.ask(by.ask(true), func(event int) {
			if event == 2 {
				leave(w, nil)
			}
		})
		if got.err == nil {
			w.t.Errorf("the client got all of %d %q", got.status, got.raw)
		}
		leave(w, nil)
		w.blamed(0, 0)
		if lines := append(log.of("stream broke off"), log.of("request failed")...); len(lines) > 0 {
			w.t.Errorf("logged: %q", lines)
		}
	})
}

// A stream that opens and sends nothing more fails after the limit for a first token, not after the one
// between two events.
func TestStreamsThatOnlyOpenHaveTheTimeOfAFirstToken(t *testing.T) {
	eachWay(t, streamed, func(w *world, by way, _ bool, log *logged) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "stall_stream", After: 1, Count: -1})(w, d)
		}
		got := w.ask(by.ask(true))
		if by.kind == openai.Completions { // its first event is content already
			return
		}
		first := w.cfg.Timeouts.DecodeFirst
		if got.status != 504 || got.took < first || got.took > first+time.Second {
			w.t.Errorf("%d after %v: %s", got.status, got.took, got.raw)
		}
		if n := w.count("tandem_requests_total", "timeout"); n != 1 {
			w.t.Errorf("%d requests timed out before a first token, want 1", n)
		}
	})
}
