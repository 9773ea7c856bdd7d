package orchestrator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// bareReader returns a reader for the answer to a split request, with the few fields that reading a stream
// needs.
func bareReader(kind openai.Kind) *eventReader {
	cached := openai.CachedPrompt{Found: 7, Added: 3}
	return &eventReader{
		kind: kind, usage: answerUsage{cached: cached},
		leg: &handoff{j: &job{}, b: &planner.Booking{}, prefillLeg: prefillLeg{cached: cached}},
	}
}

// slowly does what pass does, without its shortcut: it looks at each event.
func (s *eventReader) slowly(dst, chunk []byte) []byte {
	for e := range s.cut.Feed(chunk) {
		if code, isError := openai.HasError(e.Data()); isError {
			return s.passError(dst, e, code)
		}
		if !e.IsDone() && !s.kind.Ends(e.Data()) {
			s.usage.output++
		}
		dst = s.appendEvent(dst, e)
	}
	return dst
}

// streamEvents are events that a stream may hold. Most events of a real stream are like the first one.
var streamEvents = []string{
	`data: {"id":"x","choices":[{"index":0,"text":" word"}]}` + "\n\n",
	`data: {"id":"x","choices":[{"index":0,"text":" word"}],"usage":null}` + "\n\n",
	`data: {"id":"x","choices":[{"index":0,"text":"a \"usage\" of \"error\" and [DONE]"}]}` + "\n\n",
	`data: {"id":"x","choices":[{"index":0,"text":" word"}],"kv_transfer_params":{"remote_host":"10.0.0.1"}}` +
		"\n\n",
	`data: {"id":"x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,` +
		`"prompt_tokens_details":{"cached_tokens":1}}}` + "\n\n",
	`event: m` + "\n" + `data: {"type":"message_stop"}` + "\n\n",
	`data: {"error":{"message":"lost","code":500}}` + "\n\n",
	"data: [DONE]\n\n",
}

// For any stream, cut into any chunks, pass writes the same bytes as looking at each event.
func TestPassLooksAtWhatMatters(t *testing.T) {
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		kind := []openai.Kind{openai.Completions, openai.Chat, openai.Messages, openai.Responses}[rnd.IntN(4)]
		var stream strings.Builder
		for range 1 + rnd.IntN(12) {
			stream.WriteString(streamEvents[max(0, rnd.IntN(3*len(streamEvents))-2*len(streamEvents))])
		}
		whole := stream.String()
		if seed%8 == 0 {
			whole = strings.ReplaceAll(whole, "\n", "\r\n")
		}
		fast, slow := bareReader(kind), bareReader(kind)
		var got, want []byte
		for rest := []byte(whole); len(rest) > 0 && fast.end.bad == nil; {
			n := 1 + rnd.IntN(len(rest))
			got, want = fast.pass(got, slices.Clone(rest[:n])), slow.slowly(want, slices.Clone(rest[:n]))
			rest = rest[n:]
		}
		tell := func(s *eventReader) string {
			return fmt.Sprint(s.flow.events, s.usage.output, s.usage.promptTokens, s.end.done, s.end.bad != nil,
				len(s.cut.Pending()))
		}
		if string(got) != string(want) || tell(fast) != tell(slow) {
			t.Fatalf("seed %d, %s: %s\n%q\nwant %s\n%q", seed, kind.Path(), tell(fast), got, tell(slow), want)
		}
	}
}

// plain returns the length of the part before the first event that the router has to look at.
func TestPlain(t *testing.T) {
	words := strings.Repeat(streamEvents[0], 3)
	for _, c := range []struct {
		kind        openai.Kind
		plain, rest string
	}{
		{openai.Completions, words, ""},
		{openai.Completions, words, "data: [DONE]\n\n"},
		{openai.Completions, words + streamEvents[1] + words, streamEvents[4]},
		{openai.Completions, words, streamEvents[3] + words},
		{openai.Chat, words, streamEvents[6] + words},
		{openai.Messages, words, streamEvents[5]},
		{openai.Completions, words, `data: {"id":"x","cho`},
		{openai.Completions, "", `data: {"id":"x","cho`},
	} {
		if got := bareReader(c.kind).plain([]byte(c.plain + c.rest)); got != len(c.plain) {
			t.Errorf("%s: %d bytes of %q are plain, want %d", c.kind.Path(), got, c.plain+c.rest, len(c.plain))
		}
	}
	a := bareReader(openai.Completions)
	a.pass(nil, []byte(`data: {"id`))
	if got := a.plain([]byte(words)); got != 0 {
		t.Errorf("%d bytes are plain after the beginning of an event, want 0", got)
	}
}

func BenchmarkPass(b *testing.B) {
	const word = `data: {"id":"cmpl-x","object":"text_completion","created":1795242179,"model":"tiny",` +
		`"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null,"stop_reason":null}]}` + "\n\n"
	chunk := []byte(strings.Repeat(word, 64) + "data: [DONE]\n\n")
	for name, asked := range map[string]bool{"plain": false, "asked": true} {
		b.Run(name, func(b *testing.B) {
			a := bareReader(openai.Completions)
			a.usage.unasked.on = asked
			b.ReportAllocs()
			for b.Loop() {
				giveBuffer(a.pass(borrow(len(chunk)+slack), chunk))
			}
		})
	}
}
