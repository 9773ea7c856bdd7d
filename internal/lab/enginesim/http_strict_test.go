package enginesim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

func strictServer(t *testing.T, tools bool) *Server {
	t.Helper()
	return startServer(t, Options{
		Model: "tiny", ScaleOut: true, ZeroLatency: true, ToolParser: tools,
		Core: core.Config{BlockSize: 32, Vocab: 2048, MaxModelLen: 4096},
	})
}

// strictAnswer has the fields of an answer that these tests read.
type strictAnswer struct {
	Choices []struct {
		Text         string
		Message      struct{ Content string }
		FinishReason string   `json:"finish_reason"`
		Tokens       []uint32 `json:"token_ids"`
		Prompt       []uint32 `json:"prompt_token_ids"`
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
	}
}

func strictly(t *testing.T, s *Server, path, body string) strictAnswer {
	t.Helper()
	status, _, raw := postRaw(t, s, path, body, nil)
	var a strictAnswer
	if err := json.Unmarshal([]byte(raw), &a); err != nil || status != 200 || len(a.Choices) == 0 {
		t.Fatalf("%s: status %d, %v: %s", body, status, err, raw)
	}
	return a
}

// Parameters about tokens are obeyed, and the answer still depends on the prompt where possible.
func TestObeysWishes(t *testing.T) {
	noLeaks(t)
	s := strictServer(t, true)
	ask := func(t *testing.T, prompt, more string) strictAnswer {
		t.Helper()
		return strictly(t, s, "/v1/completions",
			`{"prompt":"`+prompt+`","max_tokens":6,"temperature":0,"return_token_ids":true`+more+`}`)
	}
	free := ask(t, "hello blocks", "").Choices[0].Tokens
	tokens := func(name, more string, want ...uint32) {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, "hello blocks", more).Choices[0].Tokens; !slices.Equal(got, want) {
				t.Errorf("tokens %v, want %v", got, want)
			}
		})
	}
	tokens("bias", `,"logit_bias":{"42":100,"43":50}`, 42, 42, 42, 42, 42, 42)
	tokens("weak bias", `,"logit_bias":{"42":1}`, free...)
	t.Run("ban", func(t *testing.T) {
		body := `,"logit_bias":{"` + string(appendInt(nil, int(free[0]))) + `":-100}`
		if got := ask(t, "hello blocks", body).Choices[0].Tokens; slices.Contains(got, free[0]) {
			t.Errorf("tokens %v have %d", got, free[0])
		}
	})
	t.Run("allowed", func(t *testing.T) {
		seen := map[uint32]bool{}
		for _, p := range []string{"a", "b", "c", "d", "e"} {
			for _, id := range ask(t, p, `,"allowed_token_ids":[70,80]`).Choices[0].Tokens {
				seen[id] = true
			}
		}
		if len(seen) != 2 || !seen[70] || !seen[80] {
			t.Errorf("tokens %v, want 70 and 80", seen)
		}
	})
	t.Run("choice", func(t *testing.T) {
		seen := map[string]bool{}
		for _, p := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			c := ask(t, p, `,"structured_outputs":{"choice":["yes","no"]}`).Choices[0]
			seen[c.Text] = true
			if c.FinishReason != "stop" || c.Tokens[len(c.Tokens)-1] != tokEOS {
				t.Errorf("%+v, want a stop with an end of text", c)
			}
		}
		if len(seen) != 2 || !seen["yes"] || !seen["no"] {
			t.Errorf("texts %v, want yes and no", seen)
		}
	})
	t.Run("cut choice", func(t *testing.T) {
		if c := ask(
			t, "a", `,"structured_outputs":{"choice":["a longer text than six tokens"]}`,
		).Choices[0]; c.FinishReason != "length" || len(c.Tokens) != 6 {
			t.Errorf("%+v, want six tokens", c)
		}
	})
	t.Run("json", func(t *testing.T) {
		a := strictly(t, s, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"x"}],"max_tokens":60,"response_format":{"type":"json_object"}}`)
		if text := a.Choices[0].Message.Content; !json.Valid([]byte(text)) || text[0] != '{' {
			t.Errorf("text %q", text)
		}
	})
	t.Run("echo", func(t *testing.T) {
		a := strictly(t, s, "/v1/completions", `{"prompt":"hello blocks","echo":true,"temperature":0}`)
		if !strings.HasPrefix(a.Choices[0].Text, "hello blocks") {
			t.Errorf("text %q", a.Choices[0].Text)
		}
	})
	t.Run("truncation", func(t *testing.T) {
		whole := ask(t, "hello blocks", "").Choices[0].Prompt
		for side, want := range map[string][]uint32{"left": whole[len(whole)-2:], "right": whole[:2]} {
			a := ask(t, "hello blocks", `,"truncate_prompt_tokens":2,"truncation_side":"`+side+`"`)
			if got := a.Choices[0].Prompt; !slices.Equal(got, want) || a.Usage.Prompt != 2 ||
				slices.Equal(a.Choices[0].Tokens, free) {
				t.Errorf("%s: prompt %v, want %v, and another text: %v", side, got, want, a)
			}
		}
	})
	t.Run("truncation to what there is room for", func(t *testing.T) {
		long := strings.Repeat("a ", 4200) // the model takes 4096 tokens
		for more, want := range map[string]int{`6`: 4095, `4096`: 4095} {
			a := strictly(t, s, "/v1/completions",
				`{"prompt":"`+long+`","truncate_prompt_tokens":-1,"max_tokens":`+more+`}`)
			if a.Usage.Prompt != want {
				t.Errorf("max_tokens %s: %d prompt tokens, want %d", more, a.Usage.Prompt, want)
			}
		}
	})
	t.Run("tools", func(t *testing.T) {
		for _, choice := range []string{
			"", `,"tool_choice":"required"`, `,"tool_choice":{"type":"function","function":{"name":"f"}}`,
		} {
			strictly(t, s, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":2,`+
				`"tools":[{"type":"function","function":{"name":"f"}}]`+choice+`}`)
		}
	})
}

// A request for more tokens than the model's context is refused with the name of its field, and never
// crashes the process.
func TestMoreTokensThanThereIsRoomFor(t *testing.T) {
	noLeaks(t)
	s := strictServer(t, true)
	for body, field := range map[string]string{
		`{"prompt":"a b","max_tokens":4097}`:                              "max_tokens",
		`{"prompt":"a b","max_tokens":40000,"truncate_prompt_tokens":-1}`: "max_tokens",
		`{"messages":[{"role":"user","content":"a"}],` +
			`"max_completion_tokens":4097}`: "max_completion_tokens",
		`{"messages":[{"role":"user","content":"a"}],"max_tokens":1e5,` +
			`"max_completion_tokens":5000}`: "max_completion_tokens",
		`{"input":"a b","max_output_tokens":4097}`: "max_output_tokens",
	} {
		path := "/v1/completions"
		if strings.Contains(body, "messages") {
			path = "/v1/chat/completions"
		} else if strings.Contains(body, "input") {
			path = "/v1/responses"
		}
		status, _, raw := postRaw(t, s, path, body, nil)
		var said struct {
			Error struct{ Message, Param string }
		}
		if err := json.Unmarshal([]byte(raw), &said); err != nil || status != 400 || said.Error.Param != field ||
			!strings.Contains(said.Error.Message, " cannot be greater than max_model_len=4096. Please request fewer") {
			t.Errorf("%s: %d %s", body, status, raw)
		}
	}
	strictly(t, s, "/v1/completions", `{"prompt":"a b","max_tokens":4096}`)
}
