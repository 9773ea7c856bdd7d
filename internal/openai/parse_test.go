package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func mustParse(t testing.TB, kind Kind, body string) *Request {
	t.Helper()
	r, err := Parse(kind, []byte(body), Limits{})
	if err != nil {
		t.Fatalf("Parse(%.200s): got %v, want no error", body, err)
	}
	return r
}

func TestParseReadsAsVLLMDoes(t *testing.T) {
	type facts struct {
		Model                        string
		Stream, Include, Continuous  bool
		MaxTokens, N                 int
		Salt, Unsplittable           string
		Batched, Tools, Multi, Templ bool
	}
	read := func(r *Request) facts {
		return facts{
			r.Model, r.Stream, r.IncludeUsage, r.ContinuousUsage, r.MaxTokens, r.N, r.CacheSalt, r.Unsplittable,
			r.Batched, r.Tools, r.Multimodal, r.Templated,
		}
	}
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		name, body string
		kind       Kind
		want       facts
	}{
		{"plain completion", `{"model":"m","prompt":"x"}`, Completions, facts{Model: "m", MaxTokens: 16, N: 1}},
		{"completion without limit", `{"prompt":"x","max_tokens":null}`, Completions, facts{N: 1}},
		{
			"a completion does not know max_completion_tokens",
			`{"prompt":"x","max_completion_tokens":3,"max_tokens":4}`, Completions,
			facts{MaxTokens: 4, N: 1},
		},
		{"chat", `{"model":"m",` + user + `,"max_tokens":7}`, Chat, facts{Model: "m", MaxTokens: 7, N: 1}},
		{
			"the newer limit wins", `{` + user + `,"max_completion_tokens":5,"max_tokens":7}`, Chat,
			facts{MaxTokens: 5, N: 1},
		},
		{
			"unless it is null", `{` + user + `,"max_completion_tokens":null,"max_tokens":7}`, Chat,
			facts{MaxTokens: 7, N: 1},
		},
		{"no limit is zero", `{` + user + `}`, Chat, facts{N: 1}},
		{"limit of zero", `{` + user + `,"max_tokens":0}`, Chat, facts{N: 1, Unsplittable: "max_tokens < 1"}},
		{
			"stream",
			`{` + user + `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`, Chat,
			facts{Stream: true, Include: true, Continuous: true, N: 1},
		},
		{
			"lax values", `{"prompt":"x","stream":"True","max_tokens":"5","n":1.0,"echo":0}`, Completions,
			facts{Stream: true, MaxTokens: 5, N: 1},
		},
		{
			"lax n", `{"prompt":"x","n":"3"}`, Completions, facts{MaxTokens: 16, N: 3, Unsplittable: "n other than 1"},
		},
		{
			"the last of a name counts", `{"prompt":"x","model":"a","stream":true,"mod\u0065l":"b","stream":false}`,
			Completions,
			facts{Model: "b", MaxTokens: 16, N: 1},
		},
		{
			"escaped names are names", `{"\u0070rompt":"x","\u006e":2}`, Completions,
			facts{MaxTokens: 16, N: 2, Unsplittable: "n other than 1"},
		},
		{
			"best_of", `{"prompt":"x","best_of":4}`, Completions,
			facts{MaxTokens: 16, N: 4, Unsplittable: "best_of other than 1"},
		},
		{
			"the larger of n and best_of", `{"prompt":"x","n":5,"best_of":2}`, Completions,
			facts{MaxTokens: 16, N: 5, Unsplittable: "n other than 1"},
		},
		{
			"beam search", `{"prompt":"x","use_beam_search":true}`, Completions,
			facts{MaxTokens: 16, N: 1, Unsplittable: "use_beam_search"},
		},
		{
			"prompt_logprobs of 0 are wanted", `{"prompt":"x","prompt_logprobs":0}`, Completions,
			facts{MaxTokens: 16, N: 1, Unsplittable: "prompt_logprobs"},
		},
		{
			"prompt_logprobs null are not", `{"prompt":"x","prompt_logprobs":null}`, Completions,
			facts{MaxTokens: 16, N: 1},
		},
		{"echo", `{"prompt":"x","echo":true}`, Completions, facts{MaxTokens: 16, N: 1, Unsplittable: "echo"}},
		{"suffix", `{"prompt":"x","suffix":"y"}`, Completions, facts{MaxTokens: 16, N: 1, Unsplittable: "suffix"}},
		{
			"embeddings", `{"prompt_embeds":"AAAA","n":2}`, Completions,
			facts{MaxTokens: 16, N: 2, Unsplittable: "prompt_embeds"},
		},
		{
			"truncation depends on the limit, which differs on the legs", `{"prompt":"x","truncate_prompt_tokens":-1}`,
			Completions,
			facts{MaxTokens: 16, N: 1, Unsplittable: "truncate_prompt_tokens"},
		},
		{
			"options without stream", `{"prompt":"x","stream_options":{"include_usage":false}}`, Completions,
			facts{MaxTokens: 16, N: 1, Unsplittable: "stream_options without stream"},
		},
		{"empty prompt", `{"prompt":""}`, Completions, facts{MaxTokens: 16, N: 1, Unsplittable: "empty prompt"}},
		{
			"batch", `{"prompt":["a","b"],"stream":1,"stream_options":{"continuous_usage_stats":true}}`, Completions,
			facts{
				Stream: true, Continuous: true, MaxTokens: 16, N: 1, Batched: true,
				Unsplittable: "continuous usage of a batch",
			},
		},
		{"salt", `{"prompt":"x","cache_salt":"\u0061b"}`, Completions, facts{MaxTokens: 16, N: 1, Salt: "ab"}},
		{"text parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b"]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"x":[1]}]}]}`, Chat, facts{N: 1}},
		{
			"image",
			`{"messages":[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}]}`,
			Chat,
			facts{N: 1, Multi: true, Unsplittable: "content that is not text"},
		},
		{
			"part without type", `{"messages":[{"content":[{"image_url":"data:"}]}]}`, Chat,
			facts{N: 1, Multi: true, Unsplittable: "content that is not text"},
		},
		{
			"part that is text first and audio last",
			`{"messages":[{"content":[{"type":"text","type":"input_audio"}]}]}`, Chat,
			facts{N: 1, Multi: true, Unsplittable: "content that is not text"},
		},
		{
			"content of another shape", `{"messages":[{"content":{"type":"text"}}]}`, Chat,
			facts{N: 1, Multi: true, Unsplittable: "content that is not text"},
		},
		{"tools", `{` + user + `,"tools":[{"type":"function"}]}`, Chat, facts{N: 1, Tools: true, Templ: true}},
		{"no tools", `{` + user + `,"tools":[ ],"functions":null}`, Chat, facts{N: 1}},
		{
			"template arguments", `{` + user + `,"chat_template_kwargs":{"enable_thinking":false}}`, Chat,
			facts{N: 1, Templ: true},
		},
		{"effort", `{` + user + `,"reasoning_effort":"low"}`, Chat, facts{N: 1, Templ: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := read(mustParse(t, tt.kind, tt.body)); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// A field that asks about prompt tokens makes the engine compute all prompt tokens, without its cache.
func TestParseSeesWhatReadsNoCache(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		body string
		kind Kind
		want bool
	}{
		{`{"prompt":"x","prompt_logprobs":0}`, Completions, true},
		{`{"prompt":"x","prompt_logprobs":null}`, Completions, false},
		{`{"prompt":"x","logprobs":2,"echo":true}`, Completions, true},
		{`{"prompt":"x","echo":true}`, Completions, false},
		{`{"prompt":"x","logprobs":2}`, Completions, false},
		{`{` + user + `,"echo":true}`, Chat, true},
		{`{` + user + `,"logprobs":true}`, Chat, false},
	} {
		if got := mustParse(t, tt.kind, tt.body).Uncached; got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.body, got, tt.want)
		}
	}
}

func TestParsePrompts(t *testing.T) {
	for _, tt := range []struct{ name, prompt, want string }{
		{"text", `"a\nb"`, `"a\nb"`},
		{"ids", `[1, 2,3]`, `[1, 2,3]=[1 2 3]`},
		{"one text", `[ "a" ]`, `"a"`},
		{"texts", `["a","b"]`, `"a" "b"`},
		{"arrays of ids", `[[1,2], [3] ,[4,5,6]]`, `[1,2]=[1 2] [3]=[3] [4,5,6]=[4 5 6]`},
		{"one array of ids", `[[7]]`, `[7]=[7]`},
		// The numbers are read as pydantic reads numbers.
		{"whole numbers", `[1.0, 1e1,2,-0, 10e-1,-0.0]`, `[1,10,2,0,1,0]=[1 10 2 0 1 0]`},
		{"arrays of whole numbers", `[[1],[2.0,3] ,[4]]`, `[1]=[1] [2,3]=[2 3] [4]=[4]`},
	} {
		r := mustParse(t, Completions, `{"max_tokens":1,"prompt": `+tt.prompt+` ,"n":1}`)
		var got []string
		for _, p := range r.Prompts {
			if p.Text != nil {
				got = append(got, string(p.Text))
			} else {
				got = append(got, fmt.Sprintf("%s=%v", p.IDsRaw, p.IDs))
			}
		}
		if got := strings.Join(got, " "); got != tt.want || r.Batched != (len(r.Prompts) > 1) {
			t.Errorf("%s: got prompts %s, batched %v; want %s", tt.name, got, r.Batched, tt.want)
		}
	}
}

func TestManyPromptsShareOneArray(t *testing.T) {
	var body bytes.Buffer
	body.WriteString(`{"prompt":[`)
	for i := range 100 {
		fmt.Fprintf(&body, "%s[%d,%d]", strings.Repeat(",", min(i, 1)), i, i+1)
	}
	body.WriteString(`]}`)
	r := mustParse(t, Completions, body.String())
	for i, p := range r.Prompts {
		if !slices.Equal(p.IDs, []uint32{uint32(i), uint32(i + 1)}) || cap(p.IDs) != 2 {
			t.Fatalf("got prompt %d %v with capacity %d, want 2 ids and capacity 2", i, p.IDs, cap(p.IDs))
		}
	}
	all := len(r.Prompts)
	r, err := Parse(Completions, body.Bytes(), Limits{Prompts: 99})
	if err != nil || r.Prompts != nil || !r.Batched || r.InBatch != all ||
		r.Unsplittable != "more prompts than may be split" {
		t.Errorf("batch above the limit: got %d prompts, %q, %v", len(r.Prompts), r.Unsplittable, err)
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	var fields strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&fields, `"f%d":1,`, i)
	}
	for _, tt := range []struct{ name, body, param, want string }{
		{"not JSON", `{not json`, "", "invalid JSON at byte 1"},
		{"nothing", ``, "", "unexpected end"},
		{"array", `[1]`, "", "must be a JSON object"},
		{"text", `"x"`, "", "must be a JSON object"},
		{"garbage behind", `{"prompt":"x"}}`, "", "text after the value"},
		{"a second body", `{"prompt":"x"}{"prompt":"y"}`, "", "text after the value"},
		{"not UTF-8", "{\"prompt\":\"\xff\"}", "", "not valid UTF-8"},
		{"overlong UTF-8", "{\"prompt\":\"\xc0\x80\"}", "", "not valid UTF-8"},
		{"surrogate in UTF-8", "{\"prompt\":\"\xed\xa0\x80\"}", "", "not valid UTF-8"},
		{"UTF-16", "{\x00\"\x00p\x00", "", "invalid JSON"},
		{"control character", "{\"prompt\":\"a\nb\"}", "", "control character"},
		{"too deep", `{"prompt":"x","z":` + deep + `}`, "", "nested too deep"},
		{"too many fields", `{` + fields.String() + `"prompt":"x"}`, "", "too many fields"},
		{"no prompt", `{"model":"m"}`, "prompt", "Either prompt or prompt_embeds"},
		{"prompt null", `{"prompt":null}`, "prompt", "Either prompt or prompt_embeds"},
		{"no prompts", `{"prompt":[]}`, "prompt", "Either prompt or prompt_embeds"},
		{"prompt object", `{"prompt":{}}`, "prompt", "prompt must be"},
		{"mixed", `{"prompt":["a",1]}`, "prompt", "prompt must be"},
		{"mixed, ids first", `{"prompt":[1,"a"]}`, "prompt", "prompt must be"},
		{"mixed arrays", `{"prompt":[[1],"a"]}`, "prompt", "prompt must be"},
		{"a fraction", `{"prompt":[1.5]}`, "prompt", "prompt must be"},
		{"a fraction behind an id", `{"prompt":[[1],[2,1e-1]]}`, "prompt", "prompt must be"},
		{"an id below 0", `{"prompt":[1.0,-1.0]}`, "prompt", "prompt must be"},
		{"an id beyond 32 bits", `{"prompt":[1e10]}`, "prompt", "prompt must be"},
		{"an id beyond all numbers", `{"prompt":[1e400]}`, "prompt", "prompt must be"},
		{"negative ids", `{"prompt":[-1]}`, "prompt", "prompt must be"},
		{"nulls", `{"prompt":[null]}`, "prompt", "prompt must be"},
		{"nested too far", `{"prompt":[[[1]]]}`, "prompt", "prompt must be"},
		{"an empty one", `{"prompt":[[1],[]]}`, "prompt", "must not be empty"},
		{"cut off in the ids", `{"prompt":[1,2`, "", "unexpected end"},
		{"model", `{"prompt":"x","model":3}`, "model", "must be a string"},
		{"stream", `{"prompt":"x","stream":"perhaps"}`, "stream", "must be a boolean"},
		{"n", `{"prompt":"x","n":1.5}`, "n", "must be an integer"},
		{"n text", `{"prompt":"x","n":"many"}`, "n", "must be an integer"},
		{"max_tokens object", `{"prompt":"x","max_tokens":{}}`, "max_tokens", "must be an integer"},
		{"options", `{"prompt":"x","stream_options":[]}`, "stream_options", "must be an object"},
		{"salt", `{"prompt":"x","cache_salt":""}`, "cache_salt", "non-empty string"},
		{"salt number", `{"prompt":"x","cache_salt":5}`, "cache_salt", "must be a string"},
		{
			"structured outputs", `{"prompt":"x","structured_outputs":"x"}`, "structured_outputs", "must be an object",
		},
		{
			"half a character in stop", `{"prompt":"x","stop":["a","\ud83d\ude00\udc00"]}`, "stop",
			"half of a surrogate pair",
		},
		{
			"half a character in an id", `{"prompt":"x","request_id":"a\\\ud800\u0041"}`, "request_id",
			"half of a surrogate pair",
		},
		{"salt of half a character", `{"prompt":"x","cache_salt":"\ud800"}`, "cache_salt", "non-empty string"},
	} {
		_, err := Parse(Completions, []byte(tt.body), Limits{})
		bad, ok := errors.AsType[*BadRequest](err)
		if !ok || bad.Param != tt.param || !strings.Contains(bad.Message, tt.want) {
			t.Errorf("%s: got %v (param %q), want %q (param %q)", tt.name, err, bad.Param, tt.want, tt.param)
			continue
		}
		var body struct {
			Error struct {
				Message, Type string
				Param         *string
				Code          int
			}
		}
		if err := json.Unmarshal(bad.Append(nil), &body); err != nil || body.Error.Message != bad.Message ||
			body.Error.Type != "BadRequestError" || body.Error.Code != 400 ||
			(body.Error.Param != nil) != (tt.param != "") {
			t.Errorf("%s: got answer %s, %v; want the error as vLLM writes it", tt.name, bad.Append(nil), err)
		}
	}
	for body, param := range map[string]string{
		`{}`: "messages", `{"messages":"x"}`: "messages", `{"messages":[1]}`: "messages",
		`{"messages":null}`: "messages",
	} {
		_, err := Parse(Chat, []byte(body), Limits{})
		if bad, ok := errors.AsType[*BadRequest](err); !ok || bad.Param != param {
			t.Errorf("chat %s: got %v, want one about %s", body, err, param)
		}
	}
	if _, err := Parse(Completions, []byte(`{"prompt":[[1,2],[3]]}`), Limits{PromptTokens: 2}); err == nil {
		t.Error("got no error for more tokens than the limit, want one")
	}
}

func TestTransferParamsGo(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{
			"alone at the end", `{"prompt":"x", "kv_transfer_params" : {"do_remote_prefill":true} }`,
			`{"prompt":"x" }`,
		},
		{"at the begin", `{ "kv_transfer_params":1, "prompt":"x"}`, `{ "prompt":"x"}`},
		{"in the middle", `{"a":1 , "ec_transfer_params":[{}] ,"prompt":"x"}`, `{"a":1 ,"prompt":"x"}`},
		{
			"twice, and escaped",
			`{"kv_transfer_params":1,"\u006bv_transfer_params":{},"prompt":"x","kv\u005ftransfer_param\u0073":"y"}`,
			`{"prompt":"x"}`,
		},
		{
			"several in a row",
			`{"prompt":"x", "kv_transfer_params":1 , "ec_transfer_params":2,"kv_transfer_params":3 ,"a":1}`,
			`{"prompt":"x" ,"a":1}`,
		},
		{
			"hints", `{"kv_hints":{"actions":[]},"prompt":"x","vllm_xargs":{"kv_hints":1}}`,
			`{"prompt":"x","vllm_xargs":{}}`,
		},
		{
			"every letter escaped",
			`{"\u006b\u0076\u005f\u0074\u0072\u0061\u006e\u0073\u0066` +
				`\u0065\u0072\u005f\u0070\u0061\u0072\u0061\u006d\u0073":{},"prompt":"x"}`,
			`{"prompt":"x"}`,
		},
		{
			"in vllm_xargs", `{"prompt":"x","vllm_xargs":{"kv_transfer_params":{"do_remote_prefill":true},"a":1}}`,
			`{"prompt":"x","vllm_xargs":{"a":1}}`,
		},
		{
			"alone in vllm_xargs", `{"prompt":"x","vllm_xargs":{ "kv_transfer_params":"{}" }}`,
			`{"prompt":"x","vllm_xargs":{  }}`,
		},
		{
			"nested carriers",
			`{"prompt":"x","extra_body":{"sampling_params":{"extra_args":{"b":2,"ec_transfer_params":1}}}}`,
			`{"prompt":"x","extra_body":{"sampling_params":{"extra_args":{"b":2}}}}`,
		},
		{
			"in an array", `{"prompt":"x","extra_args":[1,[{"kv_transfer_params":null}]]}`,
			`{"prompt":"x","extra_args":[1,[{}]]}`,
		},
		{"params in params", `{"prompt":"x","kv_transfer_params":{"kv_transfer_params":{}}}`, `{"prompt":"x"}`},
		{
			"in stream options",
			`{"prompt":"x","stream":true,"stream_options":{"kv_transfer_params":{},"include_usage":true}}`,
			`{"prompt":"x","stream":true,"stream_options":{"include_usage":true}}`,
		},
		{
			"in a field with an escaped name", `{"prompt":"x","vllm_x\u0061rgs":{"kv_transfer_params":1}}`,
			`{"prompt":"x","vllm_x\u0061rgs":{}}`,
		},
		{
			"a carrier called messages", `{"prompt":"x","extra_body":{"messages":{"kv_transfer_params":1}}}`,
			`{"prompt":"x","extra_body":{"messages":{}}}`,
		},
		{
			"a client's own data stays",
			`{"prompt":"x","response_format":{"json_schema":{"properties":{"kv_transfer_params":{}}}}}`, ``,
		},
		{"text stays", `{"prompt":"\"kv_transfer_params\": {}","user":"kv_transfer_params"}`, ``},
		{
			"names that only resemble",
			`{"prompt":"x","KV_transfer_params":1,"kv_transfer_params ":2,"xkv_transfer_params":3}`, ``,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want == "" {
				want = tt.body
			}
			body := []byte(tt.body)
			r := mustParse(t, Completions, tt.body)
			if got := string(r.Raw); got != want {
				t.Errorf("Parse: got %s\nwant %s", got, want)
			}
			if (r.Removed > 0) != (tt.want != "") {
				t.Errorf("got Removed %d, want %v", r.Removed, tt.want != "")
			}
			if got, err := Sanitize(body, Limits{}); err != nil || string(got) != want {
				t.Errorf("Sanitize: got %s, %v\nwant %s", got, err, want)
			}
			if got, err := Sanitize([]byte(`[ `+tt.body+`, 1]`), Limits{}); err != nil ||
				string(got) != `[ `+want+`, 1]` {
				t.Errorf("Sanitize of an array: got %s, %v; want %s in it", got, err, want)
			}
			if got := string(r.Edit().Append(nil)); got != want {
				t.Errorf("empty edit: got %s\nwant %s", got, want)
			}
		})
	}
}

// With Limits.KVHints, the client's hints remain. Other members that must go are still removed.
func TestAllowedHintsStay(t *testing.T) {
	const body = `{"kv_hints":{"actions":[{"payload":{}}]},"kv_transfer_params":1,"prompt":"x"}`
	const want = `{"kv_hints":{"actions":[{"payload":{}}]},"prompt":"x"}`
	r, err := Parse(Completions, []byte(body), Limits{KVHints: true})
	if err != nil || string(r.Raw) != want {
		t.Errorf("Parse: got %s, %v; want %s", r.Raw, err, want)
	}
	if got, err := Sanitize([]byte(body), Limits{KVHints: true}); err != nil || string(got) != want {
		t.Errorf("Sanitize: got %s, %v; want %s", got, err, want)
	}
}

// With Limits.NoPriority, a request loses its priority, however the name is escaped. Other members of this
// name stay.
func TestPriorityGoes(t *testing.T) {
	const body = `{"pr\u0069ority":-9,"prompt":"x","metadata":{"priority":1},"priority":-8}`
	const want = `{"prompt":"x","metadata":{"priority":1}}`
	r, err := Parse(Completions, []byte(body), Limits{NoPriority: true})
	if err != nil || string(r.Raw) != want {
		t.Errorf("Parse: got %s, %v; want %s", r.Raw, err, want)
	}
	for in, want := range map[string]string{body: want, "[" + body + "]": "[" + want + "]"} {
		if got, err := Sanitize([]byte(in), Limits{NoPriority: true}); err != nil || string(got) != want {
			t.Errorf("Sanitize: got %s, %v; want %s", got, err, want)
		}
	}
}

func TestSanitizePassesWhatIsClean(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","input":[{"kv_transfer_params":1}]}`, `"x"`, ` 1 `, `[]`, `null`,
	} {
		got, err := Sanitize([]byte(body), Limits{})
		if err != nil || string(got) != body {
			t.Errorf("Sanitize(%s): got %s, %v; want it unchanged", body, got, err)
		}
	}
	for _, body := range []string{``, `{`, "\"\xff\"", `{}{}`} {
		if _, err := Sanitize([]byte(body), Limits{}); err == nil {
			t.Errorf("Sanitize(%q): got no error, want one", body)
		}
	}
	for body, want := range map[string]Glance{
		`{"input":"x","model":"m","n":3}`:                   {Model: "m", Samples: 3},
		`{"sampling_params":{"n":70000.0,"best_of":null}}`:  {Samples: 1 << 16},
		`{"n":2,"best_of":"5","sampling_params":{"n":4}}`:   {Samples: 5},
		`{"n":-1,"stream":"no"}`:                            {Samples: 1},
		`{"n":4,"model":`:                                   {Samples: 4},
		`{"sampling_params":[{"n":9}],"choices":[{"n":9}]}`: {Samples: 1},
	} {
		if got := Peek([]byte(body)); got != want {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
	if g := Peek([]byte(`{"input":"x","model":"m\u0031","stream":true}`)); g.Model != "m1" || !g.Stream {
		t.Errorf("got %+v from Peek, want model m1 and stream", g)
	}
}

// carriesParams reads body with encoding/json. It reports whether the body has KV transfer params outside of
// the client's own data.
func carriesParams(t testing.TB, body []byte) bool {
	t.Helper()
	type frame struct {
		object, key, own bool
		name             string
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	var stack []frame
	for {
		token, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		own := top >= 0 && stack[top].own
		if top >= 0 && stack[top].object {
			if stack[top].key {
				if name, ok := token.(string); ok {
					stack[top].name, stack[top].key = name, false
					if !own && (name == "kv_transfer_params" || name == "ec_transfer_params") {
						return true
					}
					continue
				}
			} else {
				own = own || top == 0 && opaque([]byte(stack[0].name))
				stack[top].key = true
			}
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, frame{object: true, key: true, own: own})
		case json.Delim('['):
			stack = append(stack, frame{own: own})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
			if top > 0 && stack[top-1].object {
				stack[top-1].key = true
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","prompt":[1,2,3],"kv_transfer_params":{},"max_tokens":1}`,
		`{"messages":[{"role":"user","content":[{"type":"text"}]}],"vllm_xargs":{"\u006bv_transfer_params":1,` +
			`"a":[{"ec_transfer_params":2}]}}`,
		`{"kv_transfer_params":1,"kv_transfer_params":2}`,
		`{"a":{"b":1,"kv_transfer_params":1,"c":2},"prompt":"x"}`, `{"prompt":[["a"]]}`,
		`{"n":"2","stream":1e0,"stream_options":{"include_usage":"on"},"prompt":["a","b"]}`,
		`{"prompt":"x","tools":{"kv_transfer_params":1}}`,
	} {
		for kind := Chat; kind <= Responses; kind++ {
			f.Add([]byte(seed), uint8(kind-Chat))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, api uint8) {
		kind := Chat + Kind(api%4)
		before := bytes.Clone(body)
		r, err := Parse(kind, body, Limits{})
		if !bytes.Equal(body, before) {
			t.Fatal("Parse changed the bytes of its argument")
		}
		clean, cleanErr := Sanitize(body, Limits{})
		if err != nil {
			if _, ok := errors.AsType[*BadRequest](err); !ok {
				t.Fatalf("got %T %v, want BadRequest", err, err)
			}
			return
		}
		if !json.Valid(body) || !json.Valid(r.Raw) {
			t.Fatalf("%q: got %q without an error, but one of them is not JSON", body, r.Raw)
		}
		if carriesParams(t, r.Raw) {
			t.Fatalf("%q: got %q, want no transfer params", body, r.Raw)
		}
		if r.Removed == 0 && !bytes.Equal(r.Raw, body) {
			t.Fatalf("%q: got %q although Parse removed nothing", body, r.Raw)
		}
		if carriesParams(t, body) != (r.Removed > 0) {
			t.Fatalf("%q: got Removed %d, want more than 0 only if the body has transfer params", body, r.Removed)
		}
		if cleanErr != nil || !bytes.Equal(clean, r.Raw) {
			t.Fatalf("Sanitize: got %q, %v; want the result of Parse, %q", clean, cleanErr, r.Raw)
		}
		if !subsequence(r.Raw, body) {
			t.Fatalf("%q: got %q, want only removed bytes", body, r.Raw)
		}
		_ = r.Priority() // must not panic
		if got := r.Edit().Append(nil); !bytes.Equal(got, r.Raw) {
			t.Fatalf("empty edit of %q: got %q, want no change", r.Raw, got)
		}
		var twin map[string]json.RawMessage
		if err := json.Unmarshal(r.Raw, &twin); err != nil {
			t.Fatal(err)
		}
		checkLegs(t, r)
	})
}

// checkLegs checks that every body for a leg of r is an object without KV transfer params.
func checkLegs(t testing.TB, r *Request) {
	t.Helper()
	edits := []*Edit{r.PrefillIDs([]byte("[1]")), r.PrefillBody(true)}
	for i := range r.Prompts {
		edits = append(edits, r.EditPrompt(i))
	}
	for _, e := range edits {
		body := e.Append(nil)
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil || carriesParams(t, body) || len(body) > e.Len() {
			t.Fatalf("got leg %q of %q, %v; want JSON without transfer params, of at most %d bytes",
				body, r.Raw, err, e.Len())
		}
	}
}

func subsequence(short, long []byte) bool {
	for _, c := range long {
		if len(short) > 0 && short[0] == c {
			short = short[1:]
		}
	}
	return len(short) == 0
}

// BenchmarkParseIDs parses a body of token ids. It must be as fast as a copy, with no allocation for a token.
func BenchmarkParseIDs(b *testing.B) { benchmarkParse(b, Completions, idsBody(131072)) }

func BenchmarkParseText(b *testing.B) {
	benchmarkParse(b, Completions, []byte(`{"model":"m","prompt":"`+
		strings.Repeat("A prompt of plain words, as most are. ", 16<<10)+`","max_tokens":100,"stream":true}`))
}

func BenchmarkParseChat(b *testing.B) {
	message := `{"role":"user","content":"` + strings.Repeat("A line with \\\"quotes\\\" and breaks.\\n", 40) +
		`"}`
	benchmarkParse(b, Chat, []byte(
		`{"model":"m","messages":[`+strings.Repeat(message+",", 100)+message+`],"stream":true,"temperature":0.7}`,
	))
}

func benchmarkParse(b *testing.B, kind Kind, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(kind, body, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func idsBody(n int) []byte {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i*7919) % 128256
	}
	body := append([]byte(`{"model":"m","max_tokens":64,"stream":true,"prompt":`), AppendIDs(nil, ids)...)
	return append(body, `,"temperature":0}`...)
}

func TestParseAllocatesNothingPerToken(t *testing.T) {
	few, many := idsBody(1000), idsBody(100_000)
	count := func(body []byte) float64 {
		return testing.AllocsPerRun(5, func() {
			if _, err := Parse(Completions, body, Limits{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := count(few), count(many); b > a+2 || b > 30 {
		t.Errorf("got %v allocations for 1,000 ids and %v for 100,000, want at most 2 more, and 30", a, b)
	}
}
