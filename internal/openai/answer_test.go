package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// captured returns bodies of answers of vLLM 0.32.0.
func captured(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open("testdata/vllm-0.32.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bodies := map[string][]byte{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Name, Body string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		bodies[line.Name] = []byte(line.Body)
	}
	return bodies
}

func events(t testing.TB, stream []byte) (all []Event) {
	t.Helper()
	var s Events
	for e := range s.Feed(stream) {
		all = append(all, bytes.Clone(e))
	}
	if len(s.Pending()) > 0 {
		t.Errorf("got %q pending after the whole stream, want nothing", s.Pending())
	}
	return all
}

func TestReadPrefillOfRealAnswers(t *testing.T) {
	bodies := captured(t)
	for _, tt := range []struct {
		name           string
		prompt, cached int
		request        string
	}{
		{"completions leg 1", 100, 0, "cmpl-t-1-0-a8d3f786"},
		{"leg 1 cached", 100, 96, "cmpl-t-2-0-b0ab7ccd"},
		{"chat leg 1", 60, 0, "chatcmpl-t-3-ae346bc9"},
	} {
		a, err := ReadPrefill(bodies[tt.name])
		if err != nil || a.PromptTokens != tt.prompt || a.CachedTokens != tt.cached {
			t.Errorf("%s: got %+v, %v; want %d prompt tokens, %d cached", tt.name, a, err, tt.prompt, tt.cached)
		}
		if !json.Valid(a.Params) || !bytes.Contains(a.Params, []byte(tt.request)) {
			t.Errorf("%s: got params %s, want JSON with %s", tt.name, a.Params, tt.request)
		}
	}
	a, err := ReadPrefill(bodies["completions leg 2"])
	if err != nil || a.Params != nil || a.CachedTokens != 0 {
		t.Errorf("got %+v, %v; want no params and no cached tokens", a, err)
	}
	for _, body := range []string{
		``, `{`, `[]`, `{"usage":}`, `{"choices":[{"finish_reason"}]}`, `{"choices":[{"finish_reason":}]}`,
		`{"choices":[{"finish_reason":"a`, `{} x`,
	} {
		if _, err := ReadPrefill([]byte(body)); err == nil {
			t.Errorf("ReadPrefill(%s) gives no error, want one", body)
		}
	}
	for reason, stopped := range map[string]bool{
		`"length"`: false, `null`: false, `"abort"`: true, `"stop"`: true,
	} {
		a, err := ReadPrefill([]byte(`{"choices":[{"index":0,"finish_reason":` + reason + `},7]}`))
		if err != nil || a.Stopped != stopped {
			t.Errorf("finish_reason %s: got %+v, %v", reason, a, err)
		}
	}
	a, err = ReadPrefill(
		[]byte(`{"usage":null,"choices":null,"kv_transfer_params":[1],"prompt_token_ids":["x"]}`),
	)
	if err != nil || a.Params != nil || a.CachedTokens != -1 {
		t.Errorf("members of other types: got %+v, %v; want no params, and -1 cached tokens", a, err)
	}
}

func TestRealStreams(t *testing.T) {
	bodies := captured(t)
	for _, tt := range []struct {
		name  string
		first int // index of the first event with content
		error int // code of the error
	}{
		{"completions stream", 0, 0},
		{"chat stream", 1, 0},
		{"messages stream", 2, 0},
		{"responses stream", -1, 0},
		{"stream error", -1, 500},
	} {
		first, code := -1, 0
		all := events(t, bodies[tt.name])
		for i, e := range all {
			if c, ok := HasError(e.Data()); ok {
				code = c
			}
			if first < 0 && HasContent(e.Data()) {
				first = i
			}
		}
		if tt.name == "responses stream" {
			if first < 2 {
				t.Errorf("%s: got the first content in event %d, want 2 or later", tt.name, first)
			}
			first = -1
		}
		if first != tt.first || code != tt.error {
			t.Errorf("%s: got content in event %d, error %d; want %d, %d", tt.name, first, code, tt.first, tt.error)
		}
		if done := all[len(all)-1].IsDone(); done != strings.Contains(string(bodies[tt.name]), "[DONE]") {
			t.Errorf("%s: got done %v at the last event, want %v", tt.name, done, !done)
		}
	}
}

func TestHasContent(t *testing.T) {
	for data, want := range map[string]bool{
		`{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}`: false,
		`{"choices":[{"delta":{"role":"assistant"}}]}`:                                   false,
		`{"choices":[{"delta":{"content":"a"}}]}`:                                        true,
		`{"choices":[{"delta":{"reasoning_content":"a"}}]}`:                              true,
		`{"choices":[{"delta":{"tool_calls":[{}]}}]}`:                                    true,
		`{"choices":[{"delta":{"tool_calls":[]}}]}`:                                      false,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`:                              true,
		`{"choices":[{"delta":{"content":""},"token_ids":[5]}]}`:                         true,
		`{"choices":[{"text":"","finish_reason":null}]}`:                                 true,
		`{"choices":[],"usage":{"prompt_tokens":1}}`:                                     false,
		`{"error":{"code":500}}`:                                                         false,
		`[DONE]`:                                                                         false, ``: false,
		`{"choices":[{"delta"`: false, `{"choices":[{"delta":7}]}`: false, `{"choices":[5]}`: false,
	} {
		if got := HasContent([]byte(data)); got != want {
			t.Errorf("HasContent(%s) = %v, want %v", data, got, want)
		}
	}
}

func TestHasError(t *testing.T) {
	for data, want := range map[string]int{
		`{"error": {"message": "x", "type": "InternalServerError", "param": null, "code": 503}}`: 503,
		`{"error":{"message":"x"}}`:                                    500,
		`{"error":"Unauthorized"}`:                                     500,
		`{"object":"error","message":"x","code":400}`:                  400,
		`{"type":"error","error":{"type":"overloaded","message":"x"}}`: 500,
		`{"error":{"code":"17"}}`:                                      500,
		`{"error":null,"choices":[]}`:                                  0,
		`{"choices":[{"text":"\"error\""}]}`:                           0,
		`{"choices":[{"text":"x","error":{}}]}`:                        0,
		`{"error"`:                                                     0,
	} {
		code, ok := HasError([]byte(data))
		if code != want || ok != (want != 0) {
			if !(want == 0 && !ok) {
				t.Errorf("HasError(%s) = %d, %v; want %d", data, code, ok, want)
			}
		}
	}
}

func readUsage(data []byte) (Usage, bool) {
	said := Chat.Find(data)
	return said.Usage()
}

// patchUsage also reports whether the usage was changed.
func patchUsage(data []byte, cached CachedPrompt) ([]byte, bool) {
	said := Chat.Find(data)
	said.secrets = nil
	got := said.Shown(nil, cached)
	return got, len(got) > 0 && &got[0] != &data[0]
}

func TestReadUsage(t *testing.T) {
	bodies := captured(t)
	for _, tt := range []struct {
		data string
		want Usage
		ok   bool
	}{
		{string(bodies["leg 1 cached"]), Usage{100, 1, 96}, true},
		{string(bodies["responses leg 1"]), Usage{104, 1, 0}, true},
		{`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`, Usage{3, 4, -1}, true},
		{`{"usage":{"prompt_tokens":3,"prompt_tokens_details":null}}`, Usage{3, 0, -1}, true},
		{
			`{"type":"message_delta","usage":{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":4}}`,
			Usage{9, 2, 4},
			true,
		},
		{
			`{"type":"response.completed","response":{"usage":{"input_tokens":5,"output_tokens":2}}}`,
			Usage{5, 2, -1},
			true,
		},
		{`{"usage":{"prompt_tokens":-5,"completion_tokens":-7}}`, Usage{0, 0, -1}, true},
		{`{"usage":{"prompt_tokens":1e300,"completion_tokens":9223372036854775807}}`, Usage{0, 0, -1}, true},
		{`{"usage":{"prompt_tokens":1073741825,"completion_tokens":1073741824}}`, Usage{0, 1 << 30, -1}, true},
		{`{"usage":{"prompt_tokens":1.5,"completion_tokens":"many"}}`, Usage{0, 0, -1}, true},
		{`{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":-4}}}`, Usage{3, 0, -1}, true},
		{`{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":1e18}}}`, Usage{3, 0, -1}, true},
		{
			`{"type":"message_delta","usage":{"input_tokens":5,"output_tokens":-2,"cache_read_input_tokens":-9}}`,
			Usage{5, 0, -1},
			true,
		},
		{`{"usage":null}`, Usage{}, false},
		{`{"choices":[{"text":"\"usage\""}]}`, Usage{}, false},
		{`{"usage":{"prompt_tokens":`, Usage{}, false},
	} {
		if got, ok := readUsage([]byte(tt.data)); got != tt.want || ok != tt.ok {
			t.Errorf("usage of %.80s: got %+v, %v; want %+v", tt.data, got, ok, tt.want)
		}
	}
}

func TestPatchUsage(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{
			"body", `{"usage": {"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens": 9,"x":1}},"z":1.0}`,
			`{"usage": {"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens": 42,"x":1}},"z":1.0}`,
		},
		{
			"null", `{"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`,
			`{"usage":{"prompt_tokens_details":{"cached_tokens":42}}}`,
		},
		{
			"an event", "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\n",
			"data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":42}}}\n\n",
		},
		{
			"an event of several lines",
			"id: 1\r\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":9}}}\r\n\r\n",
			"id: 1\r\ndata: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":42}}}\r\n\r\n",
		},
		{
			"empty details", `{"usage":{"prompt_tokens_details":{ }}}`,
			`{"usage":{"prompt_tokens_details":{"cached_tokens":42 }}}`,
		},
		{
			"other details", `{"usage":{"prompt_tokens_details":{"audio":1}}}`,
			`{"usage":{"prompt_tokens_details":{"cached_tokens":42,"audio":1}}}`,
		},
		{
			"what was added", `{"usage":{"prompt_tokens_details":{"cached_tokens":9,"created_cache_tokens":0}}}`,
			`{"usage":{"prompt_tokens_details":{"cached_tokens":42,"created_cache_tokens":7}}}`,
		},
		{
			"an engine that does not tell what it added",
			`{"usage":{"prompt_tokens_details":{"created_cache_tokens":null,"cached_tokens":9}}}`,
			`{"usage":{"prompt_tokens_details":{"created_cache_tokens":null,"cached_tokens":42}}}`,
		},
		{
			"a response", `{"usage":{"input_tokens_details":{"cache_write_tokens":1,"cached_tokens":9}}}`,
			`{"usage":{"input_tokens_details":{"cache_write_tokens":7,"cached_tokens":42}}}`,
		},
		{"no details", `{"usage":{"prompt_tokens_details":null}}`, ""},
		{"no usage", `{"choices":[{"text":"\"prompt_tokens_details\""}]}`, ""},
		{"elsewhere", `{"x":{"prompt_tokens_details":{"cached_tokens":9}}}`, ""},
		{"cut off", `{"usage":{"prompt_tokens_details":{"cached_tokens":9}}`, ""},
		{"done", "data: [DONE]\n\n", ""},
	} {
		got, ok := patchUsage([]byte(tt.data), CachedPrompt{42, 7})
		if ok != (tt.want != "") || ok && string(got) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.name, got, ok, tt.want)
		}
	}
}

func FuzzPatchUsage(f *testing.F) {
	for _, seed := range []string{
		`{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":5}},"kv_transfer_params":{"a":1}}`,
		`{"usage":{"prompt_tokens_details":{}},"us\u0061ge":{"prompt_tokens_details":{"a":1}}}`,
		"data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":null}}}\n\n",
		`{"response":{"kv_transfer_params":{"x":[]},"ec_transfer_params":1}}`,
		`{"id":"a","choices":[{"index":0},{"index":3}],"usage":{"n":1}}`,
	} {
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, cached int) {
		got, ok := patchUsage(data, CachedPrompt{cached, cached})
		scrubbed, rewritten := Scrub(nil, data), RewriteChunk(nil, data, "id", 3)
		_, _ = MergeAnswers([][]byte{data, data}, "id")
		_, _ = ReadPrefill(data)
		UsageOnly(data)
		if !json.Valid(data) {
			return
		}
		if !json.Valid(scrubbed) || !json.Valid(rewritten) {
			t.Fatalf("%q: got %q from Scrub and %q from RewriteChunk, want JSON", data, scrubbed, rewritten)
		}
		var answer map[string]json.RawMessage
		if json.Unmarshal(scrubbed, &answer) == nil {
			for _, key := range []string{"kv_transfer_params", "ec_transfer_params"} {
				if v, there := answer[key]; there && string(v) != "null" && len(data) < 1000 {
					t.Fatalf("%q: got %s %s after Scrub, want none", data, key, v)
				}
			}
		}
		if !ok {
			return
		}
		if u, found := readUsage(got); !json.Valid(got) ||
			found && cached >= 0 && !bytes.Contains(data, []byte(`\u`)) && bytes.Count(data, []byte(`"usage"`)) == 1 &&
				bytes.Count(data, []byte("cached_tokens")) <= 1 && bytes.Count(data, []byte("_tokens_details")) == 1 &&
				!bytes.Contains(data, []byte("cache_read")) && u.Cached != cached {
			t.Fatalf("%q: got %q with usage %+v, want JSON with %d cached tokens", data, got, u, cached)
		}
	})
}

func TestScrub(t *testing.T) {
	const clean = `{"choices":[{"text":"_transfer_params and more"}]}`
	for data, want := range map[string]string{
		`{"a":1.0, "kv_transfer_params" : {"remote_host":"h"} ,` +
			`"ec_transfer_params":[1]}`: `{"a":1.0, "kv_transfer_params" : null ,"ec_transfer_params":null}`,
		`{"kv_transfer_params":null}`: `{"kv_transfer_params":null}`,
		"event: response.completed\ndata: " +
			"{\"response\":{\"kv_transfer_params\":{\"x\":{}},\"y\":1}}\n\n": "event: response.completed\ndata: " +
			"{\"response\":{\"kv_transfer_params\":null,\"y\":1}}\n\n",
		`{"choices":[{"message":{"kv_transfer_params":1}}]}`: `{"choices":[{"message":{"kv_transfer_params":1}}]}`,
		clean: clean, ``: ``, `not JSON "kv_transfer_params"`: `not JSON "kv_transfer_params"`,
	} {
		if got := string(Scrub([]byte("<"), []byte(data))); got != "<"+want {
			t.Errorf("Scrub(%s): got %s\nwant %s", data, got, want)
		}
	}
	for name, body := range captured(t) {
		if !strings.Contains(name, "stream") {
			got := Scrub(nil, body)
			if bytes.Contains(got, []byte("remote_host")) || !json.Valid(got) {
				t.Errorf("%s: got %s, want JSON without transfer params", name, got)
			}
		}
	}
}

func TestMergeAnswers(t *testing.T) {
	bodies := captured(t)
	merged, err := MergeAnswers(
		[][]byte{bodies["completions leg 1"], bodies["completions leg 2"], bodies["leg 1 cached"]}, "cmpl-x",
	)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ID      string
		Choices []struct {
			Index int
			Text  string
		}
		Usage struct {
			PromptTokens        int `json:"prompt_tokens"`
			TotalTokens         int `json:"total_tokens"`
			CompletionTokens    int `json:"completion_tokens"`
			PromptTokensDetails struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Params *int `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(merged, &got); err != nil {
		t.Fatalf("%v: %s", err, merged)
	}
	u := got.Usage
	if got.ID != "cmpl-x" || len(got.Choices) != 3 || u.PromptTokens != 300 || u.CompletionTokens != 8 ||
		u.TotalTokens != 308 || u.PromptTokensDetails.CachedTokens != 96 || got.Params != nil {
		t.Errorf("got %s, want one id, 3 choices and the sum of the usage", merged)
	}
	for i, c := range got.Choices {
		if c.Index != i {
			t.Errorf("choice %d: got index %d", i, c.Index)
		}
	}
	if got.Choices[1].Text == "" {
		t.Errorf("the text of the second answer is missing")
	}
	if _, err := MergeAnswers([][]byte{bodies["completions leg 1"], []byte(`{`)}, ""); err == nil {
		t.Error("got no error for an answer that is not JSON, want one")
	}
	if _, err := MergeAnswers(nil, ""); err == nil {
		t.Error("got no error for an empty list of answers, want one")
	}
	one, err := MergeAnswers([][]byte{[]byte(`{"choices":null,"usage":null,"id":1.0}`)}, "")
	if err != nil || string(one) != `{"choices":[],"usage":null,"id":1.0}` {
		t.Errorf("answer without choices and usage: got %s, %v; want the same members", one, err)
	}
}

func TestRewriteStream(t *testing.T) {
	var sum UsageSum
	for i, name := range []string{"completions stream", "completions stream"} {
		for _, e := range events(t, captured(t)[name]) {
			if e.IsDone() || sum.Add(e.Data()) {
				continue
			}
			got := RewriteChunk(nil, e.Data(), "cmpl-x", i)
			var chunk struct {
				ID      string
				Choices []struct{ Index int }
			}
			if err := json.Unmarshal(got, &chunk); err != nil || chunk.ID != "cmpl-x" || len(chunk.Choices) != 1 ||
				chunk.Choices[0].Index != i {
				t.Errorf("got %s, %v; want one choice with index %d", got, err, i)
			}
		}
	}
	one, ok := readUsage(captured(t)["leg 1 cached"])
	if !ok || one.Cached != 96 {
		t.Fatalf("got usage %+v, want 96 cached tokens", one)
	}
	var two UsageSum
	if !two.Add([]byte(`{"id":"a","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,`+
		`"prompt_tokens_details":{"cached_tokens":2}}}`)) ||
		!two.Add([]byte(`{"id":"b","choices":[],"usage":{"prompt_tokens":4,"completion_tokens":5,`+
			`"prompt_tokens_details":{"cached_tokens":1}}}`)) {
		t.Fatal("Add refused a usage chunk, want true")
	}
	if two.Add([]byte(`{"choices":[{"text":"x"}],"usage":{"prompt_tokens":3}}`)) ||
		two.Add([]byte(`{"choices":[],"usage":null}`)) {
		t.Error("Add accepted a chunk with choices or without usage, want false")
	}
	want := `{"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":6,` +
		`"prompt_tokens_details":{"cached_tokens":3}}}`
	if got := string(two.Append(nil, "x")); got != want {
		t.Errorf("got sum %s\nwant %s", got, want)
	}
	var none UsageSum
	if got := none.Append(nil, "x"); got != nil {
		t.Errorf("got %s for the empty sum, want nothing", got)
	}
	if got := string(RewriteChunk(nil, []byte("[DONE]"), "x", 1)); got != "[DONE]" {
		t.Errorf("got %s for the end marker, want it unchanged", got)
	}
	if !slices.Equal(RewriteChunk(nil, []byte(`{"a":1}`), "x", 1), []byte(`{"a":1}`)) {
		t.Error("a chunk without an id was changed, want it unchanged")
	}
}

// BenchmarkPassEvent measures an event of a stream that needs no change.
func BenchmarkPassEvent(b *testing.B) {
	e := Event(`data: {"id":"chatcmpl-t-3","object":"chat.completion.chunk","created":1795242180,` +
		`"model":"tiny","choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n")
	b.ReportAllocs()
	for b.Loop() {
		if bytes.Contains(e, []byte(`"usage"`)) || NeedsScrub(e) || e.IsDone() {
			b.Fatal("the event needs an edit, want none")
		}
		if _, ok := HasError(e); ok {
			b.Fatal("the event has an error, want none")
		}
	}
}
