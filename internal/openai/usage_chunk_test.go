package openai

import (
	"strings"
	"testing"
)

func TestMayAskUsage(t *testing.T) {
	const chat = `{"messages":[{"role":"user","content":"a"}],"stream":true`
	for _, c := range []struct {
		kind Kind
		body string
		want bool
	}{
		{Chat, chat + `}`, true},
		{Chat, chat + `,"n":1,"stream_options":null}`, true},
		{Chat, chat + `,"stream_options":{}}`, true},
		{Chat, chat + `,"stream_options":{"include_usage":false,"continuous_usage_stats":true}}`, true},
		{Chat, chat + `,"tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true}`, true},
		{Chat, chat + `,"stream_options":{"include_usage":true}}`, false},
		{Chat, chat + `,"stream_options":{"include_usage":"yes"}}`, false},
		{Chat, chat + `,"stream_options":{"include_obfuscation":false}}`, false},
		{Chat, chat + `,"n":2}`, false},
		{Chat, strings.Replace(chat, "true", "false", 1) + `}`, false},
		{Completions, `{"prompt":"a","stream":true}`, true},
		{Completions, `{"prompt":[1,2],"stream":true,"echo":true}`, true},
		{Completions, `{"prompt":["a","b"],"stream":true}`, true}, // the router sends each prompt alone
		{Completions, `{"prompt":["a","b"],"stream":true,"best_of":2}`, false},
		{Completions, `{"prompt_embeds":"AAAA","stream":true}`, false},
		{Completions, `{"prompt":"a"}`, false},
		{Messages, `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"stream":true}`, false},
		{Responses, `{"input":"a","stream":true}`, false},
	} {
		r, err := Parse(c.kind, []byte(c.body), Limits{})
		if err != nil {
			t.Fatalf("%s: got %v, want no error", c.body, err)
		}
		if r.MayAskUsage != c.want {
			t.Errorf("%s %s: got %v, want %v", c.kind.Path(), c.body, r.MayAskUsage, c.want)
		}
	}
}

// continuous_usage_stats of a client has no effect without include_usage. AskUsage must not change this.
func TestAskUsage(t *testing.T) {
	for body, want := range map[string]string{
		`{"prompt":"a","stream":true}`: `{"prompt":"a","stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream_options":{"continuous_usage_stats":true},"prompt":"a","stream":true}`: `{"stream_options":` +
			`{"include_usage":true},"prompt":"a","stream":true}`,
	} {
		r, err := Parse(Completions, []byte(body), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		e := r.Edit()
		e.AskUsage()
		if got := string(e.Append(nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestFinishes(t *testing.T) {
	for _, c := range []struct {
		data string
		at   bool // FinishAt finds a possible finish reason
		want bool
	}{
		{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`, false, false},
		{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, true, true},
		{`{"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}`, true, true},
		{`{"choices": [{"index": 0, "text": "", "finish_reason": null}]}`, true, false},
		{`{"choices":[{"index":0,"finish_reason":null},{"index":1,"finish_reason":"stop"}]}`, true, true},
		{`{"choices":[{"index":0,"text":"\"finish_reason\":\"stop\"","finish_reason":null}]}`, false, false},
		{`{"choices":[{"index":0,"delta":{"finish_reason":"x"},"finish_reason":null}]}`, true, false},
		{`{"choices":[],"usage":{}}`, false, false},
		{`{"choices":[{"finish_reason":"stop"}]`, true, false},
		{`[DONE]`, false, false},
	} {
		if at := FinishAt([]byte(c.data)) >= 0; at != c.at {
			t.Errorf("%s: got a possible finish reason %v, want %v", c.data, at, c.at)
		}
		if got := Finishes([]byte(c.data)); got != c.want {
			t.Errorf("%s: got %v, want %v", c.data, got, c.want)
		}
	}
}

func TestAppendNamed(t *testing.T) {
	const name = `,"system_fingerprint":"v"`
	for _, c := range []struct{ event, name, want string }{
		{"data: {\"a\":[{}]}\n\n", `"v"`, "data: {\"a\":[{}]" + name + "}\n\n"},
		{"data: {\"a\":\"}\"}  \r\n\r\n", `"v"`, "data: {\"a\":\"}\"" + name + "}  \r\n\r\n"},
		{"data:{}\n\n", `"v"`, "data:{" + name[1:] + "}\n\n"},
		{
			"data: {\"a\":1,\"system_fingerprint\":null,\"b\":2}\n\n", `"v"`,
			"data: {\"a\":1" + name + ",\"b\":2}\n\n",
		},
		{"data: {\"a\":1,\"system_fingerprint\":\"own\"}\n\n", `"v"`, ""},
		{"data: {\"a\":1,\"system_fingerprint\":null}\n\n", "", ""},
		{"data: {\"a\":1}\n\n", "", ""},
		{"data: [DONE]\n\n", `"v"`, ""},
		{"data: {\"a\":\n\n", `"v"`, ""},
		{": a comment\n\n", `"v"`, ""},
	} {
		want := c.want
		if want == "" {
			want = c.event
		}
		if got := string(AppendNamed(nil, Event(c.event), []byte(c.name))); got != want {
			t.Errorf("%q named %s: got %q, want %q", c.event, c.name, got, want)
		}
	}
}

func TestFingerprint(t *testing.T) {
	for data, want := range map[string]string{
		`{"choices":[],"usage":{},"system_fingerprint":"vllm-1-a\"b"}`: `"vllm-1-a\"b"`,
		`{"system_fingerprint":null}`:                                  "",
		`{"usage":{"system_fingerprint":"x"}}`:                         "",
		`{`:                                                            "",
	} {
		if got := string(Fingerprint([]byte(data))); got != want {
			t.Errorf("%s: got %s, want %s", data, got, want)
		}
	}
}
