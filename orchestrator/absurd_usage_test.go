package orchestrator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
)

// An engine may report an absurd number of tokens. The client still gets the engine's answer unchanged, no
// request panics, and no counter includes an impossible number.
func TestAbsurdUsageCostsNoAnswer(t *testing.T) {
	const text = `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,` +
		`"text":"x","logprobs":null,"finish_reason":"stop"}]%s}`
	local := setup{prefill: 1, decode: 1, config: func(c *config.Config) { c.Local = config.LocalAlways }}
	in(t, local, func(w *world) {
		for _, n := range []string{
			"-7", "-9223372036854775808", "9223372036854775807", "1e300", "1.5", `"x"`,
			"null",
		} {
			usage := fmt.Sprintf(`,"usage":{"prompt_tokens":%s,"completion_tokens":%[1]s,"total_tokens":%[1]s,`+
				`"prompt_tokens_details":{"cached_tokens":%[1]s}}`, n)
			w.wire.scripted(w.d[0].addr, answerOf(200, "application/json", "", fmt.Sprintf(text, usage)))
			if got := w.ask(completion(false)); got.status != 200 || got.err != nil ||
				!strings.Contains(got.raw, `"text":"x"`) {
				t.Errorf("%s tokens: status %d, error %v, %q", n, got.status, got.err, got.raw)
			}
			w.wire.scripted(w.d[0].addr, streamOf(fmt.Sprintf(text, ""),
				`{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[]`+usage+`}`, "[DONE]"))
			if got := w.ask(completion(true)); got.status != 200 || got.err != nil || got.text != "x" ||
				got.dones != 1 {
				t.Errorf("%s tokens, streamed: status %d, error %v, %q", n, got.status, got.err, got.raw)
			}
		}
		if n := w.count("tandem_tokens_total", "output"); n < 0 || n > 100 {
			t.Errorf("%d output tokens counted, want the tokens of a few words", n)
		}
		w.exact(completion(true), w.ask(completion(true)))
	})
}
