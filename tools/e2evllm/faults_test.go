package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answers of the four APIs, whole and streamed, with the text "one two" and with 5 and 2 tokens.
const (
	wholeCompletion = `{"choices":[{"index":0,"text":"one two","token_ids":[7,8],"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	wholeMessage = `{"type":"message","content":[{"type":"text","text":"one two"}],"stop_reason":"end_turn",` +
		`"usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":2}}`
	wholeResponse = `{"id":"r","status":"completed","output":[{"content":[{"text":"one two"}]}],` +
		`"usage":{"input_tokens":5,"output_tokens":2}}`
	chatEvents = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}

data: {"choices":[{"index":0,"delta":{"content":"one"}}]}

: keep-alive

data: {"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}

data: [DONE]

`
	messageEvents = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":3}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"one"}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" two"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`
	responseEvents = `event: response.created
data: {"type":"response.created","response":{"status":"in_progress","output":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"one"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":" two"}

event: response.completed
data: {"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":5,"output_tokens":2}}}

`
)

// listenTo sends a request to a server that answers with text. With cut, the server breaks the connection
// off after the text.
func listenTo(t *testing.T, path string, stream bool, status int, text string, cut bool) *landed {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
		if cut {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	l := tell(t.Context(), s.URL, request{path: path, body: map[string]any{"stream": stream}}, func() {})
	return &l
}

// TestEachAPIIsHeard reads the same answer from the four APIs.
func TestEachAPIIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		path, whole, events string
	}{
		"chat":      {chat, wholeCompletion, chatEvents},
		"messages":  {messagesPath, wholeMessage, messageEvents},
		"responses": {responsesPath, wholeResponse, responseEvents},
	} {
		t.Run(name, func(t *testing.T) {
			whole := listenTo(t, c.path, false, 200, c.whole, false)
			streamed := listenTo(t, c.path, true, 200, c.events, false)
			whole.ids = nil
			if v, why := judgeLanded(streamed, whole, false); v != exact || whole.text != "one two" ||
				whole.prompt != 5 || whole.output != 2 {
				t.Errorf("%s (%+v, whole %+v)", why, *streamed, *whole)
			}
			if v, why := judgeLanded(whole, streamed, false); v != exact {
				t.Error(why)
			}
		})
	}
}

// TestWhatAnAnswerIsWorth checks the judge for each kind of answer that a fault can cause.
func TestWhatAnAnswerIsWorth(t *testing.T) {
	const (
		vllm      = `{"error":{"message":"gone","type":"InternalServerError","param":null,"code":502}}`
		anthropic = `{"type":"error","error":{"type":"api_error","message":"gone"}}`
		response  = `{"type":"error","code":"server_error","message":"gone","param":null,"sequence_number":3}`
	)
	half := func(events string) string {
		at := strings.Index(events, `one"`)
		return events[:at+strings.Index(events[at:], "\n\n")+2]
	}
	event := func(events, name, data string) string {
		if name != "" {
			name = "event: " + name + "\n"
		}
		return half(events) + name + "data: " + data + "\n\n"
	}
	for name, c := range map[string]struct {
		path   string
		status int
		events string
		cut    bool // the connection breaks off
		killed bool // the engine was killed, so a broken connection is allowed
		want   worth
	}{
		"exact": {chat, 200, chatEvents, false, false, exact},
		"another text": {
			chat, 200, strings.Replace(chatEvents, " two", " too", 1), false, false, wrong,
		},
		"another finish": {
			chat, 200, strings.Replace(chatEvents, "stop", "length", 1), false, false, wrong,
		},
		"another usage": {
			chat, 200, strings.Replace(chatEvents, `tokens":2`, `tokens":3`, 1), false, false, wrong,
		},
		"stops":                {chat, 200, half(chatEvents), false, false, wrong},
		"messages stop":        {messagesPath, 200, half(messageEvents), false, false, wrong},
		"a response stops":     {responsesPath, 200, half(responseEvents), false, false, wrong},
		"broken off":           {chat, 200, half(chatEvents), true, false, wrong},
		"broken off by a kill": {chat, 200, half(chatEvents), true, true, clearError},
		"wrong, then killed": {
			chat, 200, strings.Replace(half(chatEvents), "one", "eins", 1), true, true, wrong,
		},
		"error event": {
			chat, 200, event(chatEvents, "", vllm) + "data: [DONE]\n\n", false, false, clearError,
		},
		"error event, no end": {chat, 200, event(chatEvents, "", vllm), false, false, wrong},
		"error event, wrong before": {
			chat, 200, strings.Replace(event(chatEvents, "", vllm), "one", "eins", 1) + "data: [DONE]\n\n", false,
			false, wrong,
		},
		"error event of another API": {
			chat, 200, event(chatEvents, "error", anthropic) + "data: [DONE]\n\n", false, false, wrong,
		},
		"error event of messages": {
			messagesPath, 200, event(messageEvents, "error", anthropic), false, false, clearError,
		},
		"messages, then more": {
			messagesPath, 200, event(messageEvents, "error", anthropic) + "data: [DONE]\n\n", false, false, wrong,
		},
		"messages, no name": {messagesPath, 200, event(messageEvents, "", anthropic), false, false, wrong},
		"messages, vLLM's":  {messagesPath, 200, event(messageEvents, "error", vllm), false, false, wrong},
		"error event of responses": {
			responsesPath, 200, event(responseEvents, "error", response), false, false, clearError,
		},
		"responses, vLLM's": {
			responsesPath, 200, event(responseEvents, "error", vllm), false, false, wrong,
		},
		"502":              {chat, 502, vllm, false, false, clearError},
		"503 of messages":  {messagesPath, 503, anthropic, false, false, clearError},
		"502 of responses": {responsesPath, 502, vllm, false, false, clearError},
		"502 that says nothing": {
			chat, 502, `{"error":{"message":"","type":"x","code":502}}`, false, false, wrong,
		},
		"502 without JSON":          {chat, 502, "Bad Gateway", false, false, wrong},
		"400":                       {chat, 400, vllm, false, false, wrong},
		"messages with vLLM's body": {messagesPath, 502, vllm, false, false, wrong},
		"no JSON":                   {chat, 200, "data: {\n\ndata: [DONE]\n\n", false, false, wrong},
		"a line that is no event":   {chat, 200, "oops\n" + chatEvents, false, false, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			whole := map[string]string{
				chat: wholeCompletion, messagesPath: wholeMessage, responsesPath: wholeResponse,
			}[c.path]
			want := listenTo(t, c.path, false, 200, whole, false)
			want.ids = nil
			if v, why := judgeLanded(listenTo(t, c.path, true, c.status, c.events, c.cut), want,
				c.killed); v != c.want {
				t.Errorf("verdict %d, want %d (%s)", v, c.want, why)
			}
		})
	}
	if v, _ := judgeLanded(listenTo(t, chat, true, 200, chatEvents, false),
		listenTo(t, chat, true, 500, vllm, false), false); v != wrong {
		t.Error("an answer counts as right without an answer of the reference")
	}
}

// TestARefusedConnectionIsClearOnlyAfterAKill sends a request to a port at which no process listens.
func TestARefusedConnectionIsClearOnlyAfterAKill(t *testing.T) {
	want := listenTo(t, chat, false, 200, wholeCompletion, false)
	got := tell(t.Context(), "http://127.0.0.1:1", request{path: chat, body: map[string]any{}}, func() {})
	if v, why := judgeLanded(&got, want, true); v != clearError {
		t.Error(why)
	}
	if v, _ := judgeLanded(&got, want, false); v != wrong {
		t.Error("the router was not killed, but a refused connection passes")
	}
}

// TestWhatARowDemands checks that a row fails for an error in a phase that must have no errors, and for a
// fault that affected no request.
func TestWhatARowDemands(t *testing.T) {
	var r faultRow
	r.count(&flight{phase: "a", took: time.Second}, exact, "")
	r.count(&flight{phase: "b", took: 2 * time.Second}, clearError, "502 gone")
	if err := r.wantErrorsOnly("b"); err != nil {
		t.Error(err)
	}
	if err := r.wantErrorsOnly("a"); err == nil || !strings.Contains(err.Error(), "concerned none") ||
		!strings.Contains(err.Error(), "502 gone") {
		t.Errorf("a row with the wrong errors: %v", err)
	}
	if r.wantExact() == nil {
		t.Error("a row with an error counts as exact")
	}
	r.fault, r.coreErr = "the fault", errors.New("d")
	var table bytes.Buffer
	printFaults(&table, []*faultRow{&r})
	for _, want := range []string{"the fault", "502 gone", "2.0 s", "DIFFERS"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in %s", want, table.String())
		}
	}
}

// TestSeriesAreAddedUp reads a router's metrics and sums series.
func TestSeriesAreAddedUp(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP tandem_leases x\ntandem_leases{pool=\"prefill\",replica=\"p0\"} 2\n"+
			"tandem_leases{pool=\"decode\",replica=\"d0\"} 1\n"+
			"tandem_leases_more{pool=\"prefill\"} 50\ntandem_stalled_seconds_total 1.5\n")
	}))
	defer s.Close()
	r := &router{admin: s.URL}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{3, "tandem_leases", nil},
		{2, "tandem_leases", []string{`pool="prefill"`}},
		{0, "tandem_leases", []string{`replica="p1"`}},
		{1.5, "tandem_stalled_seconds_total", nil},
	} {
		if got, err := r.series(t.Context(), c.name, c.labels...); err != nil || got != c.want {
			t.Errorf("%s %v is %v (%v), want %v", c.name, c.labels, got, err, c.want)
		}
	}
}

// TestAStreamHasBegunWithItsFirstText checks that a stream begins with its first text and not with its
// first event.
func TestAStreamHasBegunWithItsFirstText(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	more := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		role, rest, _ := strings.Cut(chatEvents, "\n\n")
		fmt.Fprint(w, role+"\n\n")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprint(w, rest)
	}))
	defer s.Close()
	one := launch(ctx, s.URL, "p", request{path: chat, body: map[string]any{"stream": true}})
	if err := awaitFirst(ctx, one, 100*time.Millisecond); err == nil {
		t.Error("a role counts as content")
	}
	close(more)
	if err := awaitFirst(ctx, one, 10*time.Second); err != nil || one.land().text != "one two" {
		t.Errorf("%v: %+v", err, one.landed)
	}
}

// TestFaultsAreChosenByName checks that an unknown name is refused.
func TestFaultsAreChosenByName(t *testing.T) {
	if some, err := chosenScenes("long,margin"); err != nil || len(some) != 2 || some[0].key != "long" {
		t.Error(some, err)
	}
	if all, err := chosenScenes(""); err != nil || len(all) != len(scenes) {
		t.Error(all, err)
	}
	if _, err := chosenScenes("sun"); err == nil || !strings.Contains(err.Error(), "prefill-dies") {
		t.Errorf("an unknown name: %v", err)
	}
}
