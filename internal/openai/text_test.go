package openai

import (
	"bytes"
	"strings"
	"testing"
)

func promptText(t *testing.T, kind Kind, body string, i int) string {
	t.Helper()
	r, err := Parse(kind, []byte(body), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Join(r.PromptText(nil, i), nil))
}

func TestPromptText(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind Kind
		body string
		i    int
		want string
	}{
		{"a completion", Completions, `{"model":"m","prompt":"all \"work\""}`, 0, `all \"work\"`},
		{"the second of a batch", Completions, `{"prompt":["a","b"]}`, 1, "b"},
		{"beyond the batch", Completions, `{"prompt":["a","b"]}`, 2, ""},
		{"token ids", Completions, `{"prompt":[1,2]}`, 0, ""},
		{
			"a chat", Chat, `{"messages": [ {"role":"user","content":"x]"} ] ,"n":1}`, 0,
			`[ {"role":"user","content":"x]"}`,
		},
		{"a chat without messages", Chat, `{"messages":[]}`, 0, "["},
		{
			"tools come first", Chat, `{"messages":[{"content":"x"}],"tools":[{"type":"function"}],"temperature":0}`,
			0, `"tools"[{"type":"function"}][{"content":"x"}`,
		},
		{
			"other fields do not count", Chat, `{"seed":7,"messages":[{"content":"x"}],"max_tokens":5}`, 0,
			`[{"content":"x"}`,
		},
	} {
		if got := promptText(t, tt.kind, tt.body, tt.i); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The text of a conversation begins with the whole text of its earlier turns.
func TestLaterTurnsSharePromptText(t *testing.T) {
	turns := []string{
		`{"role":"system","content":"Be brief."}`, `{"role":"user","content":"Why?"}`,
		`{"role":"assistant","content":"So."}`, `{"role":"user","content":"Oh."}`,
	}
	for _, form := range []string{
		`{"model":"m","messages":[%],"tools":[{"type":"function"}]}`,
		"{\n \"tools\": [],\n \"messages\": [\n %\n ]\n}",
	} {
		before := ""
		for n := 1; n <= len(turns); n++ {
			got := promptText(t, Chat, strings.Replace(form, "%", strings.Join(turns[:n], ","), 1), 0)
			if !strings.HasPrefix(got, before) || len(got) <= len(before) {
				t.Errorf("got %s\nwant a longer text that begins with %s", got, before)
			}
			before = got
		}
	}
}
