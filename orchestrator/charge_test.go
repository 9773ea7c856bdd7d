package orchestrator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/picker"
)

// keyTokens reads how many tokens of each kind a key has been charged.
func (w *world) keyTokens(key string) (all [3]int) {
	w.t.Helper()
	for line := range strings.Lines(w.metrics()) {
		for i, kind := range []string{"prompt", "cached", "generated"} {
			of := fmt.Sprintf(`tandem_key_tokens_total{key=%q,kind=%q,`, key, kind)
			if fields := strings.Fields(line); strings.HasPrefix(line, of) {
				n, err := strconv.Atoi(fields[len(fields)-1])
				if err != nil {
					w.t.Fatal(line, err)
				}
				all[i] += n
			}
		}
	}
	return all
}

// severalSamples asks for two answers to a prompt of some blocks.
func severalSamples(stream bool) prompt {
	p := chat(stream)
	p.body = strings.Replace(p.body, `"temperature":0`, `"temperature":1,"seed":1,"n":2`, 1)
	return p
}

// A key is charged what its client is told: through every API, streamed or not, also for several samples and
// where the engine answers alone.
func TestTheChargeIsTheUsage(t *testing.T) {
	in(t, setup{config: limited}, func(w *world) {
		for _, way := range append(slices.Clone(ways), way{"several samples", openai.Chat, severalSamples}) {
			for _, stream := range []bool{false, true} {
				for range 2 { // what the first time has cached, the second time finds
					p, before := way.ask(stream), w.keyTokens("team-c")
					got := w.ask(p.shows("hush-c"))
					after := w.keyTokens("team-c")
					reported := [3]int{got.usage.Prompt, got.usage.Details.Cached, got.usage.Completion}
					for i := range after {
						after[i] -= before[i]
					}
					unasked := stream && reported == [3]int{}
					if got.status != 200 || after[2] == 0 || !unasked && after != reported {
						t.Errorf("%s, stream %v: %d; charged %v (prompt, cached, generated), and the client was told %v",
							way.name, stream, got.status, after, reported)
					}
				}
			}
		}
	})
}

// The event that ends a stream is no token.
func TestAnEndIsNoToken(t *testing.T) {
	const stream = "event: content_block_delta\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}` + "\n\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}` + "\n\n" +
		`data: {"type":"message_stop"}` + "\n\n"
	var picked pickedAnswer
	for _, part := range []picker.Part{okStream, last(raw(stream))} {
		if _, err := picked.take(openai.Messages, &part, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	a := bareReader(openai.Messages)
	a.pass(nil, []byte(stream))
	if picked.output != 5 || a.usage.output != 5 {
		t.Errorf("a gateway's answer has %d tokens, ours has %d, want 5", picked.output, a.usage.output)
	}
}

// The cached tokens of a charge are those that the client is told. The decode leg of a split also reports as
// cached what it got from the prefill leg. If the leg makes the rest of an answer, tokens of the answer are
// among them.
func TestCachedTokensOfACharge(t *testing.T) {
	for _, c := range []struct {
		name                         string
		record, prompt, reports, had int // had: tokens that the prefill leg of the newest answer found, -1 unknown
		want                         int
	}{
		{"record", 16, 63, 60, 0, 16},
		{"several samples", -1, 63, 32, -1, 32},
		{"rest, split", -1, 63, 121, 0, 0},
		{"rest, not split", -1, 63, 121, -1, 63},
		{"nothing reported", -1, 63, -1, -1, 0},
	} {
		a := &answer{}
		a.usage.reportedCached, a.usage.cached = c.reports, openai.CachedPrompt{Found: c.had, Added: -1}
		if got := cachedOf(&observe.Record{Delivered: c.record, Prompt: c.prompt}, a); got != c.want {
			t.Errorf("%s: charged %d cached tokens, want %d", c.name, got, c.want)
		}
	}
	if got := cachedOf(&observe.Record{Delivered: -1, Prompt: 63}, nil); got != 0 {
		t.Errorf("without an answer %d cached tokens were charged, want 0", got)
	}
}
