package openai

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// The members in same do not change the canonical form of a conversation. Each member in other does.
func TestQuestionsOfConversations(t *testing.T) {
	for _, tt := range []struct {
		kind        Kind
		first       string
		same, other []string // members to insert before the first member
	}{
		{
			Messages, `"temperature":0,"max_tokens":9,"messages":[{"role":"user","content":"a"}]}`,
			[]string{`"metadata":{"user_id":"u"},`, `"temperature":1,`, `"max_tokens":8,`},
			[]string{
				`"stream":true,`, `"system":"s",`, `"system":[{"type":"text","text":"s"}],`, `"top_k":4,`,
				`"stop_sequences":["x"],`, `"thinking":{"type":"enabled","budget_tokens":1024},`,
				`"output_config":{"effort":"low"},`, `"cache_salt":"s",`, `"model":"m",`,
				`"chat_template_kwargs":{"a":1},`, `"output_config":{"format":{"schema":{"a":1,"b":2}}},`,
				`"output_config":{"format":{"schema":{"b":2,"a":1}}},`,
			},
		},
		{
			Responses, `"temperature":0,"input":[{"role":"user","content":"a"}]}`,
			[]string{
				`"store":false,`, `"prompt_cache_key":"k",`, `"session_id":"s",`, `"priority":2,`,
				`"safety_identifier":"u",`, `"temperature":1,`, `"store":null,`,
			},
			[]string{
				`"stream":true,`, `"instructions":"i",`, `"user":"u",`, `"metadata":{"a":"b"},`, `"service_tier":"flex",`,
				`"max_output_tokens":5,`, `"include":["message.output_text.logprobs"],`, `"top_logprobs":2,`,
				`"reasoning":{"effort":"low"},`, `"include_reasoning":false,`,
				`"text":{"format":{"type":"json_object"}},`,
				`"truncation":"auto",`, `"request_id":"r",`, `"seed":1,`, `"seed":2,`, `"logit_bias":{"1":2},`,
				`"parallel_tool_calls":false,`, `"tool_choice":"none",`, `"tool_choice":"auto",`, `"cache_salt":"s",`,
			},
		},
	} {
		want, why := canonical(t, tt.kind, "{"+tt.first)
		if why != "" {
			t.Fatalf("%s: got %q, want a repeatable request", tt.first, why)
		}
		for _, more := range tt.same {
			if got, why := canonical(t, tt.kind, "{"+more+tt.first); got != want || why != "" {
				t.Errorf("%s: got %s (%s)\nwant %s", more, got, why, want)
			}
		}
		seen := map[string]string{want: "nothing"}
		for _, more := range tt.other {
			got, why := canonical(t, tt.kind, "{"+more+tt.first)
			if was := seen[got]; was != "" || why != "" {
				t.Errorf("%s: got the canonical form of %s (%s), want another form", more, was, why)
			}
			seen[got] = more
		}
	}
}

// A conversation is not repeatable if it uses an engine's stored responses, a tool or a picture, or if it has
// a member that the API lacks.
func TestConversationsThatAreNotRepeatable(t *testing.T) {
	for _, tt := range []struct {
		kind       Kind
		body, want string
	}{
		{Messages, `{"max_tokens":9,"messages":[{"role":"user","content":"a"}]}`, NotSame},
		{Messages, `{"temperature":0,"messages":[],"n":2}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"priority":2}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"watermarking":true}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"vllm_xargs":{"a":1}}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"mcp_servers":[{"name":"x"}]}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"tools":[{"name":"t"}]}`, ToolsAsked},
		{Messages, `{"temperature":0,"messages":[],"tool_choice":{"type":"auto"}}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[{"role":"user","content":[{"type":"image"}]}]}`, MediaAsked},
		{Messages, `{"temperature":0,"messages":[],"system":[{"type":"image"}]}`, UnknownMember},
		{Messages, `{"temperature":0,"messages":[],"tools":[],"tool_choice":null}`, ""},
		{Responses, `{"input":"a"}`, NotSame},
		{Responses, `{"temperature":0,"input":"a","store":true}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","store":false,"store":"yes"}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","store":"perhaps"}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","previous_response_id":"resp_1"}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","conversation":{"id":"c"}}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","background":true}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","previous_input_messages":[{"role":"user"}]}`, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","prompt":{"id":"p"}}`, UnknownMember},
		{Responses, `{"temperature":0,"input":"a","of_tomorrow":1}`, UnknownMember},
		{Responses, `{"temperature":0,"input":"a","enable_response_messages":true}`, UnknownMember},
		{Responses, `{"temperature":0,"input":"a","tools":[{"type":"web_search"}]}`, ToolsAsked},
		{Responses, `{"temperature":0,"input":[{"type":"item_reference","id":"x"}]}`, MediaAsked},
		{Responses, `{"temperature":0,"input":"a","previous_response_id":null,"background":false}`, ""},
	} {
		if _, why := canonical(t, tt.kind, tt.body); why != tt.want {
			t.Errorf("%s: got %q, want %q", tt.body, why, tt.want)
		}
	}
}

// If the operator allows it, a seed makes a request repeatable, on the APIs that have seeds. An answer that
// outlives its engine must not depend on the engine's stored responses.
func TestConversationsByTheOperatorsWord(t *testing.T) {
	for _, tt := range []struct {
		kind Kind
		body string
		rule Repeat
		want string
	}{
		{Responses, `{"input":"a","seed":1}`, Repeat{Seeded: true}, ""},
		{Messages, `{"messages":[],"seed":1}`, Repeat{Seeded: true}, UnknownMember},
		{Responses, `{"temperature":0,"input":"a"}`, Repeat{Outlives: true}, StoreAsked},
		{Responses, `{"temperature":0,"input":"a","store":false}`, Repeat{Outlives: true}, ""},
		{Messages, `{"temperature":0,"messages":[]}`, Repeat{Outlives: true}, ""},
	} {
		r, err := Parse(tt.kind, []byte(tt.body), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, why := r.Repeatable(tt.rule); why != tt.want {
			t.Errorf("%s: got %q, want %q", tt.body, why, tt.want)
		}
	}
}

func TestFinishedConversations(t *testing.T) {
	event := func(data string) string { return "event: x\ndata: " + data + "\n\n" }
	delta := func(reason string) string {
		return event(`{"type":"message_start","message":{"stop_reason":null}}`) +
			event(`{"type":"content_block_delta","delta":{"text":"\"stop_reason\":\"tool_use\""}}`) +
			event(`{"type":"message_delta","delta":{"stop_reason":`+reason+`}}`)
	}
	stop := event(`{"type":"message_stop"}`)
	last := func(kind, response string) string {
		return event(`{"response":{"status":"in_progress"},"type":"response.created"}`) +
			event(`{"response":`+response+`,"type":"`+kind+`"}`)
	}
	const full = `{"output":[{"status":"completed"}],"status":"incomplete","incomplete_details":{"reason":`
	for _, tt := range []struct {
		kind   Kind
		answer string
		want   bool
	}{
		{Messages, `{"type":"message","stop_reason":"end_turn"}`, true},
		{Messages, ` {"stop_reason":"max_tokens"}`, true},
		{Messages, `{"stop_reason":"stop_sequence"}`, true},
		{Messages, `{"stop_reason":"tool_use"}`, false},
		{Messages, `{"stop_reason":null}`, false},
		{Messages, `{"content":[{"stop_reason":"end_turn"}]}`, false},
		{Messages, delta(`"end_turn"`) + stop, true},
		{Messages, delta(`"end_turn"`) + strings.TrimSpace(stop), true},
		{Messages, delta(`"end_turn"`), false},
		{Messages, delta(`null`) + stop, false},
		{Messages, delta(`"tool_use"`) + stop, false},
		{Messages, delta(`"end_turn"`) + event(`{"type":"error","error":{}}`), false},
		{Messages, stop, false},
		{Messages, "", false},
		{Responses, `{"status":"completed"}`, true},
		{Responses, full + `"max_output_tokens"}}`, true},
		{Responses, full + `"content_filter"}}`, false},
		{Responses, `{"status":"cancelled"}`, false},
		{Responses, `{"status":"queued"}`, false},
		{Responses, `{"output":[{"status":"completed"}]}`, false},
		{Responses, last("response.completed", `{"status":"completed"}`), true},
		{Responses, last("response.completed", full+`"max_output_tokens"}}`), true},
		{Responses, last("response.incomplete", full+`"max_output_tokens"}}`), true},
		{Responses, last("response.failed", `{"status":"failed"}`), false},
		{Responses, last("response.cancelled", `{"status":"cancelled"}`), false},
		{Responses, last("response.output_text.delta", `{"status":"completed"}`), false},
		{Responses, "", false},
	} {
		if got := (&Request{Kind: tt.kind}).Finished([]byte(tt.answer)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.answer, got, tt.want)
		}
	}
}

// A deeply nested request has no canonical form, as writing the form would take time for each level.
func TestDeepQuestionsAreNotRepeatable(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for n, want := range map[int]string{maxDepth - 1: "", maxDepth: UnknownMember} {
		body := `{"temperature":0,"chat_template_kwargs":` + nested(n) +
			`,"messages":[{"role":"user","content":"a"}]}`
		if _, why := canonical(t, Chat, body); why != want {
			t.Errorf("%d arrays: got %q, want %q", n, why, want)
		}
		e := &Encoding{Path: "/v1/embeddings", Body: []byte(`{"input":` + nested(n) + `}`)}
		if _, why := e.Repeatable(Repeat{}); why != want {
			t.Errorf("%d arrays of texts: got %q, want %q", n, why, want)
		}
	}
}

// The canonical form of a request to any API is JSON with the same meaning, and is its own canonical form.
func FuzzRepeatableOthers(f *testing.F) {
	for _, seed := range []string{
		`{"temperature":0,"messages":[{"content":[{"type":"text","text":"a\u0041"}],"role":"user"}],"top_p":1e0}`,
		`{"temperature":0,"input":[{"role":"user","content":"\ud83d\ude00"}],"metadata":{"b":"1","a":"2"}}`,
		`{"input":["a",[1,2]],"encoding_format":"float","user":"u","dimensions":3}`,
		`{"query":"q","documents":[{"content":[{"text":"d","type":"text"}]}],"top_n":0,"top_n":1}`,
	} {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(2))
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, api uint8) {
		read := func(body []byte) ([]byte, string) {
			if kind := []Kind{Messages, Responses, 0, 0}[api%4]; kind != 0 {
				r, err := Parse(kind, body, Limits{})
				if err != nil {
					return nil, err.Error()
				}
				return r.Repeatable(Repeat{})
			}
			clean, err := Sanitize(body, Limits{})
			if err != nil {
				return nil, err.Error()
			}
			e := &Encoding{Path: []string{"/v1/embeddings", "/rerank"}[api%2], Body: clean}
			return e.Repeatable(Repeat{})
		}
		one, why := read(body)
		if why != "" {
			return
		}
		two, why := read(one)
		if !bytes.Equal(one, two) || why != "" {
			t.Fatalf("got %s from the canonical form (%s)\nwant no change of %s", two, why, one)
		}
		said, asked := decoded(t, one), decoded(t, body)
		for name := range asked { // the canonical form lacks members that name the user
			if said[name] == nil {
				delete(asked, name)
				delete(said, name)
			}
		}
		delete(said, "user")
		delete(said, "metadata")
		if len(body) > 0 && !bytes.Contains(body, []byte("_transfer_params")) && !reflect.DeepEqual(said, asked) {
			t.Fatalf("got %v\nwant %v\n%s", said, asked, body)
		}
	})
}
