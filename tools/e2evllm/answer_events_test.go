package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	responseWhole = `{"id":"resp_1","created_at":5,"status":"incomplete",` +
		`"incomplete_details":{"reason":"max_output_tokens"},"model":"m","output":[{"id":"msg_1",` +
		`"type":"message","content":[{"type":"output_text","text":"one two","logprobs":[{"token":"one",` +
		`"logprob":-0.5},{"token":" two","logprob":-0.25}]}]}],` +
		`"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":3},"output_tokens":2,` +
		`"total_tokens":11},"kv_transfer_params":null}`
	responseStream = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","created_at":5,"status":"in_progress","model":"m","output":[],"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":1,"delta":"one","logprobs":[{"token":"one","logprob":-0.5}]}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":2,"delta":" two","logprobs":[{"token":" two","logprob":-0.25}]}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":3,"text":"one two"}

event: response.incomplete
data: {"type":"response.incomplete","sequence_number":4,"response":` + responseWhole + `}

`
	messageWhole = `{"id":"m1","type":"message","content":[{"type":"text","text":"one two"}],"model":"m",` +
		`"stop_reason":"stop_sequence","stop_sequence":"o",` +
		`"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":5}}`
	messageStream = `event: message_start
data: {"type":"message_start","message":{"id":"m1","type":"message","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":9,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","content_block":{"type":"text","text":""},"index":0}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"one"},"index":0}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" two"},"index":0}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"o"},"usage":{"input_tokens":6,"output_tokens":2,"cache_read_input_tokens":3}}

event: message_stop
data: {"type":"message_stop"}

`
)

// TestConversationsAreRead reads a whole and a streamed answer with the same content.
func TestConversationsAreRead(t *testing.T) {
	for path, c := range map[string]struct {
		whole, stream string
		want          choice
		events        string
	}{
		responses: {
			responseWhole, responseStream,
			choice{
				text: "one two", finish: "incomplete, max_output_tokens",
				logprobs: []logprob{{"one", -.5}, {" two", -.25}},
			},
			"response.created response.output_text.delta response.output_text.done response.incomplete",
		},
		messages: {
			messageWhole, messageStream,
			choice{text: "one two", finish: "stop_sequence", stop: "o"},
			"message_start content_block_start content_block_delta content_block_stop message_delta message_stop",
		},
	} {
		a, err := ask(t.Context(), serveText(t, 200, c.whole), path, map[string]any{})
		b, errStream := ask(t.Context(), serveText(t, 200, c.stream), path, map[string]any{"stream": true})
		if err := errors.Join(err, errStream); err != nil {
			t.Fatal(err)
		}
		for _, got := range []answer{a, b} {
			want := answer{
				status: 200, choices: []choice{c.want}, usage: usage{9, 2, 11}, events: got.events, rest: got.rest,
			}
			if d := difference(got, want); d != "" || got.cached != 3 {
				t.Errorf("%s: %s, %d cached", path, d, got.cached)
			}
		}
		if a.events != "" || b.events != c.events || a.rest == "" || b.rest == "" {
			t.Errorf("%s: events %q and %q, rest %q and %q", path, a.events, b.events, a.rest, b.rest)
		}
		for _, of := range []string{"resp_1", "msg_1", "m1", `"usage"`, "created_at"} {
			if strings.Contains(a.rest+b.rest, of) {
				t.Errorf("%s: %s would be compared: %s", path, of, b.rest)
			}
		}
	}
}

// TestEveryDifferenceOfConversationsIsSeen changes one thing at a time. Tokens that arrive in a common
// delta are not a difference.
func TestEveryDifferenceOfConversationsIsSeen(t *testing.T) {
	joined := [2]string{`"sequence_number":1,"delta":"one","logprobs":[{"token":"one","logprob":-0.5}]}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":2,"delta":" two","logprobs":[{`, `"sequence_number":1,"delta":"one two","logprobs":[{"token":"one","logprob":-0.5},{`}
	renumbered := strings.NewReplacer(joined[0], joined[1], `"sequence_number":3`, `"sequence_number":2`,
		`"sequence_number":4`, `"sequence_number":3`)
	for _, c := range []struct {
		path, text, with string
		same             bool
	}{
		{responses, responseStream, renumbered.Replace(responseStream), true},
		{responses, responseStream, strings.ReplaceAll(responseStream, "resp_1", "resp_2"), true},
		{
			responses, responseStream, strings.ReplaceAll(responseStream, `"cached_tokens":3`, `"cached_tokens":0`),
			true,
		},
		{messages, messageStream, strings.Replace(messageStream,
			`"input_tokens":6,"output_tokens":2,"cache_read_input_tokens":3`, `"input_tokens":9,"output_tokens":2`,
			1), true},
		{responses, responseStream, strings.Replace(responseStream, `"delta":" two"`, `"delta":" too"`, 1), false},
		{
			responses, responseStream, strings.Replace(responseStream, `"text":"one two"`, `"text":"one too"`, 1),
			false,
		},
		{responses, responseStream, strings.Replace(responseStream, `-0.25}]}`, `-0.26}]}`, 1), false},
		{
			responses, responseStream, strings.Replace(responseStream, `"input_tokens":9`, `"input_tokens":8`, 1),
			false,
		},
		{
			responses, responseStream, strings.Replace(responseStream, `"max_output_tokens"`, `"content_filter"`, 1),
			false,
		},
		{
			responses, responseStream, strings.ReplaceAll(responseStream, "response.incomplete", "response.completed"),
			false,
		},
		{messages, messageStream, strings.Replace(messageStream, `"text":"one"`, `"text":"won"`, 1), false},
		{
			messages, messageStream, strings.Replace(messageStream, `"stop_sequence":"o"`, `"stop_sequence":"a"`, 1),
			false,
		},
		{
			messages, messageStream,
			strings.Replace(messageStream, `"stop_reason":"stop_sequence"`, `"stop_reason":"end_turn"`, 1), false,
		},
		{
			messages, messageStream, strings.Replace(messageStream, `"output_tokens":2`, `"output_tokens":3`, 1),
			false,
		},
		{
			messages, messageStream, strings.ReplaceAll(messageStream, "content_block_stop", "content_block_end"),
			false,
		},
		{messages, messageStream, strings.Replace(messageStream, `"model":"m"`, `"model":"n"`, 1), false},
	} {
		if c.text == c.with {
			t.Fatal("the change changes nothing")
		}
		body := map[string]any{"stream": true}
		a, err := ask(t.Context(), serveText(t, 200, c.text), c.path, body)
		b, errOther := ask(t.Context(), serveText(t, 200, c.with), c.path, body)
		if err := errors.Join(err, errOther); err != nil {
			t.Fatal(err)
		}
		if d := difference(a, b); (d == "") != c.same {
			t.Errorf("%s: the difference is %q, in\n%s", c.path, d, c.with)
		}
	}
}

// TestBadConversationsAreErrors checks that the reader refuses malformed streams.
func TestBadConversationsAreErrors(t *testing.T) {
	for name, c := range map[string]struct{ path, text string }{
		"no end": {
			messages,
			strings.Replace(messageStream, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n", "", 1),
		},
		"another behind the end": {messages, messageStream + messageStream},
		"an error": {
			messages,
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"}}\n\n",
		},
		"a failure": {
			responses, strings.ReplaceAll(responseStream, "response.incomplete", "response.failed"),
		},
		"two ids": {responses, strings.Replace(responseStream, `"id":"resp_1"`, `"id":"resp_2"`, 1)},
		"a wrong name": {
			responses, strings.Replace(responseStream, "event: response.output_text.done", "event: response.done", 1),
		},
		"a number twice": {
			responses, strings.Replace(responseStream, `"sequence_number":2`, `"sequence_number":1`, 1),
		},
		"no event": {responses, "oops\n" + responseStream},
		"transfer parameters": {
			responses, strings.Replace(responseStream, `"kv_transfer_params":null`, `"kv_transfer_params":{"a":1}`, 1),
		},
		"an address": {messages, strings.Replace(messageStream, `"model":"m"`, `"model":"http://127.0.0.1:1"`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ask(t.Context(), serveText(t, 200, c.text), c.path,
				map[string]any{"stream": true}); err == nil {
				t.Error("a malformed stream was read as an answer")
			}
		})
	}
}

// TestNothingOfTheInsideIsShown checks refusals and headers for internal addresses.
func TestNothingOfTheInsideIsShown(t *testing.T) {
	if _, err := ask(t.Context(), serveText(t, 500, `{"error":{"message":"dial tcp 127.0.0.1:4"}}`), completions,
		map[string]any{}); err == nil {
		t.Error("an address in a refusal was not detected")
	}
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-To", "127.0.0.1:4") }),
	)
	defer s.Close()
	if _, err := ask(t.Context(), s.URL, completions, map[string]any{}); err == nil ||
		!strings.Contains(err.Error(), "shows") {
		t.Errorf("an address in a header was not detected: %v", err)
	}
	a, err := ask(t.Context(), serveText(t, 400, `{"error":{"message":"too long"}}`), completions,
		map[string]any{})
	if err != nil || a.status != 400 || !strings.Contains(a.refusal, "too long") {
		t.Errorf("a refusal: %+v, %v", a, err)
	}
}
