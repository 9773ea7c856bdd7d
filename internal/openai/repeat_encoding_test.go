package openai

import "testing"

// The bodies in same have one canonical form. Each body in other has another form.
func TestQuestionsForVectors(t *testing.T) {
	ask := func(path, body string) (string, string) {
		c, why := (&Encoding{Path: path, Body: []byte(body)}).Repeatable(Repeat{})
		return string(c), why
	}
	for _, tt := range []struct {
		path, first string
		same, other []string
	}{
		{
			"/v1/embeddings", `{"model":"m","input":["a","b"]}`,
			[]string{
				`{ "input" : [ "\u0061", "b" ] , "model":"m" }`, `{"input":"x","model":"m","input":["a","b"]}`,
				`{"model":"m","input":["a","b"],"user":"u","priority":3}`,
			},
			[]string{
				`{"model":"m","input":["b","a"]}`, `{"model":"m","input":"a"}`, `{"model":"n","input":["a","b"]}`,
				`{"model":"m","input":["a","b"],"dimensions":3}`, `{"model":"m","input":[[1,2],[3]]}`,
				`{"model":"m","input":[[1,2,3]]}`, `{"model":"m","input":["a","b"],"encoding_format":"base64"}`,
				`{"model":"m","input":["a","b"],"cache_salt":"s"}`, `{"model":"m","input":["a","b"],"request_id":"r"}`,
				`{"model":"m","input":["a","b"],"truncate_prompt_tokens":2}`,
				`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			},
		},
		{
			"/rerank", `{"query":"q","documents":["a","b"]}`,
			[]string{`{"documents":["a","b"],"query":"q"}`},
			[]string{
				`{"query":"q","documents":["a","b"],"top_n":1}`, `{"query":"p","documents":["a","b"]}`,
				`{"query":"q","documents":["a"]}`, `{"query":"q","documents":["a","b"],"instruction":"i"}`,
			},
		},
		{
			"/score", `{"text_1":"a","text_2":["b"]}`, nil,
			[]string{`{"queries":"a","documents":["b"]}`, `{"text_1":"b","text_2":["a"]}`},
		},
		{"/classify", `{"input":"a"}`, nil, []string{`{"input":"a","use_activation":true}`}},
		{"/pooling", `{"input":"a"}`, nil, []string{`{"input":"a","task":"token_embed"}`}},
	} {
		want, why := ask(tt.path, tt.first)
		if why != "" {
			t.Fatalf("%s: got %q, want a repeatable request", tt.first, why)
		}
		for _, body := range tt.same {
			if got, why := ask(tt.path, body); got != want || why != "" {
				t.Errorf("%s: got %s (%s)\nwant %s", body, got, why, want)
			}
		}
		seen := map[string]string{want: tt.first}
		for _, body := range tt.other {
			got, why := ask(tt.path, body)
			if was := seen[got]; was != "" || why != "" {
				t.Errorf("%s: got the canonical form of %s (%s), want another form", body, was, why)
			}
			seen[got] = body
		}
	}
}

func TestVectorsThatAreNotRepeatable(t *testing.T) {
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/embeddings", `{"input":"a","of_tomorrow":1}`, UnknownMember},
		{"/v1/embeddings", `{"input":"a","task":"embed"}`, UnknownMember},
		{"/v1/embeddings", `{"input":"a","encoding_format":"bytes"}`, UnknownMember},
		{"/v1/embeddings", `{"input":"a","mm_processor_kwargs":{"a":1}}`, UnknownMember},
		{"/v1/embeddings", `{"input":"\ud800"}`, UnknownMember},
		{"/v1/embeddings", `["a"]`, UnknownMember},
		{"/v1/embeddings", `{"input":"a"`, UnknownMember},
		{"/v1/embeddings", ``, UnknownMember},
		{"/v1/embeddings", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, MediaAsked},
		{"/v1/embeddings", `{"input":[[{"role":"user","content":[{"type":"image_url"}]}]]}`, MediaAsked},
		{"/pooling", `{"data":{"image":"https://example.org/x"}}`, UnknownMember},
		{"/score", `{"text_1":"a","text_2":{"content":[{"type":"image_url"}]}}`, MediaAsked},
		{"/rerank", `{"query":"a","documents":["b"],"return_documents":true}`, UnknownMember},
		{"/rerank", `{"query":"a","documents":[{"text":"b"}]}`, MediaAsked},
		{"/other", `{"input":"a"}`, UnknownMember},
		{"/v1/embeddings", `{"input":"a","encoding_format":"float","of_tomorrow":null}`, ""},
		{"/score", `{"text_1":"a","text_2":{"content":[{"type":"text","text":"b"}]}}`, ""},
	} {
		if _, why := (&Encoding{Path: tt.path, Body: []byte(tt.body)}).Repeatable(Repeat{}); why != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.path, tt.body, why, tt.want)
		}
	}
}

func TestFinishedVectors(t *testing.T) {
	for answer, want := range map[string]bool{
		`{"object":"list","data":[{"embedding":[0.5]}],"usage":{}}`: true,
		`{"results":[]} `:                  true,
		`{"data":[0.5`:                     false,
		`{"data":[]}{`:                     false,
		`{"error":{"code":500},"data":[]}`: false,
		`{"object":"list"}`:                false,
		`[]`:                               false,
		``:                                 false,
	} {
		if got := (&Encoding{}).Finished([]byte(answer)); got != want {
			t.Errorf("%s: got %v, want %v", answer, got, want)
		}
	}
}
