package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseConversations(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		kind Kind
		body string
		why  string // the reason why the request cannot be split; "" if it can
	}{
		{Messages, `{"model":"m","max_tokens":5,` + hi + `}`, ""},
		{Messages, `{"model":"m","max_tokens":"5",` + hi +
			`,"stream":true,"system":[{"type":"text","text":"s"}],"tools":[{"name":"f","input_schema":{}}]}`, ""},
		{Messages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f",` +
			`"input":{}},{"type":"thinking","thinking":"x"}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text",` +
			`"text":"r"}]}]}]}`, ""},
		{
			Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}`,
			"content that is not text",
		},
		{Messages, `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, "content that is not text"},
		{Messages, `{"messages":[{"role":"user","content":7}]}`, "content that is not text"},
		{Messages, `{"messages":[7]}`, "content that is not text"},
		{Messages, `{"messages":[]}`, "no messages"},
		{Messages, `{"messages":"hi"}`, "messages is no array"},
		{Messages, `{"model":"m"}`, "no prompt"},
		{Messages, `{"model":7,` + hi + `}`, "model is no string"},
		{Messages, `{"max_tokens":0,` + hi + `}`, "max_tokens < 1"},
		{Messages, `{"max_tokens":[],` + hi + `}`, "max_tokens is no integer"},
		{Messages, `{"stream":"perhaps",` + hi + `}`, "stream is no boolean"},
		{Messages, `{"cache_salt":"s",` + hi + `}`, ""},
		{Messages, `{"cache_salt":"",` + hi + `}`, "a salt that no engine takes"},
		{Messages, `{"mcp_servers":[{}],` + hi + `}`, "built-in tools"},
		{Messages, `{"tools":[{"type":"bash_20250124","name":"bash"}],` + hi + `}`, "built-in tools"},
		{Messages, `{"tools":{"a":1},` + hi + `}`, "tools is no array"},
		{Messages, `{"n":"many","echo":[],` + hi + `}`, ""}, // the API does not have these members
		{Responses, `{"model":"m","input":"hi","max_output_tokens":5,"cache_salt":"s"}`, ""},
		{Responses, `{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},` +
			`{"type":"function_call","name":"f","arguments":"{}","call_id":"1"},` +
			`{"type":"function_call_output","call_id":"1","output":"r"},{"type":"reasoning","summary":[]}],` +
			`"tools":[{"type":"function","name":"f"}]}`, ""},
		{Responses, `{"input":[{"type":"item_reference","id":"x"}]}`, "content that is not text"},
		{Responses, `{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, "content that is not text"},
		{Responses, `{"input":"hi","tools":[{"type":"code_interpreter"}]}`, "built-in tools"},
		{Responses, `{"input":"hi","tools":[{}]}`, "built-in tools"},
		{Responses, `{"input":"hi","previous_response_id":"r"}`, "previous_response_id"},
		{
			Responses,
			`{"input":"hi","previous_response_id":null,"background":false,"store":true,"truncation":"disabled"}`, "",
		},
		{Responses, `{"input":"hi","background":true}`, "background"},
		{Responses, `{"input":"hi","truncation":"auto"}`, "truncation"},
		{Responses, `{"input":"hi","prompt":{"id":"p"}}`, "a prompt template"},
		{Responses, `{"input":"hi","cache_salt":""}`, "a salt that no engine takes"},
		{Responses, `{"input":"hi","max_output_tokens":-1}`, "max_tokens < 1"},
		{Responses, `{"messages":[{"role":"user","content":"hi"}]}`, "no prompt"},
	} {
		if r := mustParse(t, tt.kind, tt.body); r.Unsplittable != tt.why {
			t.Errorf("%s: got %q, want %q", tt.body, r.Unsplittable, tt.why)
		}
	}
	r := mustParse(t, Responses, `{"model":"m","stream":1,"input":"hi","max_output_tokens":5,"max_tokens":7,`+
		`"cache_salt":"s","kv_transfer_params":{"a":1}}`)
	if r.Model != "m" || !r.Stream || r.MaxTokens != 5 || r.CacheSalt != "s" || string(r.Messages) != `"hi"` ||
		r.Removed != 1 || r.N != 1 {
		t.Errorf("got %+v, want the members that the body sets, and the params removed", r)
	}
}

// The prefill leg of messages has no member that the API lacks.
func TestPrefillLegOfConversations(t *testing.T) {
	for kind, want := range map[Kind]string{
		Messages:  `{"model":"m","prompt":[1,2],"max_tokens":1,"temperature":0,"cache_salt":"s"}`,
		Responses: `{"model":"m","prompt":[1,2],"max_tokens":1,"temperature":0,"cache_salt":"s","priority":3}`,
	} {
		r := mustParse(t, kind,
			`{"model":"m","priority":3,"cache_salt":"s","input":"hi","messages":[{"role":"user","content":"hi"}]}`)
		if got := string(r.PrefillIDs([]byte("[1,2]")).Append(nil)); got != want {
			t.Errorf("%s: got %s, want %s", kind.Path(), got, want)
		}
	}
}

func TestUsageOfConversations(t *testing.T) {
	for _, tt := range []struct {
		name, data, want string
		usage            Usage
	}{
		{
			"a message", `{"type":"message","usage":{"input_tokens":5,"output_tokens":3,` +
				`"cache_creation_input_tokens":32,"cache_read_input_tokens":64}}`,
			`{"type":"message","usage":{"input_tokens":45,"output_tokens":3,"cache_creation_input_tokens":40,` +
				`"cache_read_input_tokens":16}}`,
			Usage{101, 3, 64},
		},
		{
			"its end in a stream",
			"event: message_delta\ndata: " + `{"type":"message_delta","usage":{"input_tokens":5,"output_tokens":3,` +
				`"cache_creation_input_tokens":0,"cache_read_input_tokens":96}}` + "\n\n",
			"event: message_delta\ndata: " + `{"type":"message_delta","usage":{"input_tokens":45,"output_tokens":3,` +
				`"cache_creation_input_tokens":40,"cache_read_input_tokens":16}}` + "\n\n",
			Usage{101, 3, 96},
		},
		{
			"its begin", `{"type":"message_start","message":{"usage":{"input_tokens":101,"output_tokens":0}}}`, "",
			Usage{101, 0, -1},
		},
		{
			"a response",
			`{"id":"x","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":8},"output_tokens":2}}`,
			`{"id":"x","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":16},"output_tokens":2}}`,
			Usage{9, 2, 8},
		},
		{
			"its end in a stream", "event: response.completed\ndata: " + `{"response":{"usage":{"input_tokens":9,` +
				`"input_tokens_details":{"cached_tokens":8},"output_tokens":2}},"type":"response.completed"}` + "\n\n",
			"event: response.completed\ndata: " + `{"response":{"usage":{"input_tokens":9,` +
				`"input_tokens_details":{"cached_tokens":16},"output_tokens":2}},"type":"response.completed"}` + "\n\n",
			Usage{9, 2, 8},
		},
		{
			"a message of an engine that does not tell what it added",
			`{"type":"message","usage":{"cache_read_input_tokens":64,"input_tokens":37,"output_tokens":3}}`,
			`{"type":"message","usage":{"cache_read_input_tokens":16,"input_tokens":85,"output_tokens":3}}`,
			Usage{101, 3, 64},
		},
		{
			"a message whose numbers would not add up",
			`{"type":"message","usage":{"cache_read_input_tokens":16,"input_tokens":3,"output_tokens":3,` +
				`"cache_creation_input_tokens":32}}`,
			"",
			Usage{51, 3, 16},
		},
		{
			"a message without details",
			`{"type":"message","usage":{"input_tokens":5,"output_tokens":3,"cache_read_input_tokens":null}}`, "",
			Usage{5, 3, -1},
		},
	} {
		data := []byte(tt.data)
		json := data
		if strings.HasPrefix(tt.data, "event") {
			json = Event(data).Data()
		}
		if u, ok := readUsage(json); !ok || u != tt.usage {
			t.Errorf("%s: got %+v, want %+v", tt.name, u, tt.usage)
		}
		if got, ok := patchUsage(data, CachedPrompt{16, 40}); ok != (tt.want != "") ||
			ok && string(got) != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestErrorsOfConversations(t *testing.T) {
	for data, want := range map[string]int{
		`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`:        503,
		`{"type":"error","error":{"type":"api_error","message":"x"}}`:               500,
		`{"type":"error","error":{"type":"internal_error","message":"x"}}`:          500,
		`{"type":"error","error":{"type":"NotFoundError","message":"x"}}`:           404,
		`{"error":{"code":503,"type":"BadRequestError","message":"x"}}`:             503,
		`{"type":"error","error":{"type":"invalid_request_error","message":"x"}}`:   400,
		`{"type":"response.failed","response":{"error":{"code":"server_error"}}}`:   500,
		`{"type":"response.completed","response":{"error":null},"error":null}`:      0,
		`{"type":"response.output_text.delta","delta":"\"error\" response.failed"}`: 0,
	} {
		if code, is := HasError([]byte(data)); is != (want > 0) || is && code != want {
			t.Errorf("%s: got code %d, error %v; want code %d", data, code, is, want)
		}
	}
	for kind, want := range map[Kind]string{
		Chat: "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":502}}\n\ndata: " +
			"[DONE]\n\n",
		Messages: "event: error\ndata: " +
			"{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"}}\n\n",
		Responses: "event: error\ndata: " +
			"{\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\",\"param\":null," +
			"\"sequence_number\":4}\n\n",
	} {
		got := string(kind.ErrorEvent(nil, "m", "t", 502, 4))
		if got != want || !json.Valid(Event(strings.SplitAfter(got, "\n\n")[0]).Data()) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Message([]byte(`{"error":{"message":"a \"b\"","type":"x"}}`)); got != `a "b"` {
		t.Errorf(`got message %q, want a "b"`, got)
	}
}

// Ends is true for every last event of a stream. MayEndAt finds each of these events too.
func TestEndsOfConversations(t *testing.T) {
	for kind, last := range map[Kind][]string{
		Messages:  {"message_stop"},
		Responses: {"response.completed", "response.incomplete", "response.failed", "response.cancelled"},
	} {
		for _, name := range last {
			data := []byte(`{"type":"` + name + `"}`)
			if !kind.Ends(data) || kind.MayEndAt(data) < 0 {
				t.Errorf("%s: got no end of %s, want one", name, kind.Path())
			}
			if Chat.Ends(data) || Chat.MayEndAt(data) >= 0 {
				t.Errorf("%s: got the end of a chat, want none", name)
			}
		}
	}
	if Messages.Ends([]byte(`{"type":"message_delta"}`)) ||
		Responses.Ends([]byte(`{"type":"response.in_progress"}`)) {
		t.Error("got the end of the stream at an event in its middle")
	}
}

// Opens is true for the events before the content of an answer. Every other event may have content.
func TestOpeningsOfConversations(t *testing.T) {
	for kind, names := range map[Kind][]string{
		Messages:  {"message_start", "ping"},
		Responses: {"response.created", "response.queued", "response.in_progress"},
	} {
		for _, name := range names {
			if data := []byte(`{"type":"` + name + `"}`); !kind.Opens(data) || Chat.Opens(data) {
				t.Errorf("%s: got Opens false for %s, or true for a chat", name, kind.Path())
			}
		}
		for _, name := range []string{"content_block_start", "response.output_item.added", "error", ""} {
			if kind.Opens([]byte(`{"type":"` + name + `"}`)) {
				t.Errorf("%q: got Opens true for %s, want false", name, kind.Path())
			}
		}
	}
}

// Acts is set even if another member already makes the request unsplittable.
func TestWhatActs(t *testing.T) {
	for body, want := range map[string]bool{
		`"tools":[{"type":"function","name":"f"}]`:                         false,
		`"truncation":"auto"`:                                              false,
		`"previous_response_id":"resp_1"`:                                  false,
		`"tools":[{"type":"mcp","server_url":"http://x"}]`:                 true,
		`"truncation":"auto","tools":[{"type":"web_search_preview"}]`:      true,
		`"tools":[{"type":"function"},{"type":"code_interpreter"}]`:        true,
		`"tools":{"type":"mcp"}`:                                           true,
		`"tools":["mcp"]`:                                                  true,
		`"background":true`:                                                true,
		`"background":false`:                                               false,
		`"conversation":{"id":"c"}`:                                        true,
		`"input":[{"type":"image"}],"tools":[{"type":"code_interpreter"}]`: true,
	} {
		r, err := Parse(Responses, []byte(`{"model":"m","input":"a",`+body+`}`), Limits{})
		if err != nil || r.Acts != want {
			t.Errorf("%s: got acts %v, %v; want %v", body, r != nil && r.Acts, err, want)
		}
	}
	r, err := Parse(Messages, []byte(`{"model":"m","max_tokens":1,"messages":[],"mcp_servers":[{"url":"x"}]}`),
		Limits{})
	if err != nil || !r.Acts {
		t.Errorf("mcp_servers: got %v, want Acts", err)
	}
}
