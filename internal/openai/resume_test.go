package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// teller is an engine that always gives the same greedy answer, with the events of vLLM 0.32. It delays the
// bytes of an incomplete character, and the last characters if a stop string may begin with them.
type teller struct {
	kind    Kind
	prompt  []uint32 // the prompt of the client
	pieces  []string // the answer, one piece for each token
	stops   []string
	include bool
	id      string
	most    int // limit of tokens of the whole answer
	ids     bool
	usage   bool
	always  bool       // usage in every event
	bundle  func() int // number of tokens of the next event
	several bool       // an event may have more than one token
}

// say returns the events of an answer. The prompt already contains the first done tokens of the answer.
func (x *teller) say(t *testing.T, done int) []string {
	if before := strings.Join(x.pieces[:done], ""); !utf8.ValidString(before) && done > 0 {
		t.Fatalf("the prompt ends within a character, after %q", before)
	}
	var events []string
	emit := func(format string, args ...any) {
		events = append(events, "data: "+fmt.Sprintf(format, args...)+"\n\n")
	}
	head := fmt.Sprintf(`{"id":"%s","object":"o","created":%d,"model":"m-%s","choices":[`, x.id, len(x.id), x.id)
	usage := func(n int) string {
		prompt := len(x.prompt) + done
		return fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d`,
			prompt, prompt+n, n)
	}
	tail := func(n int) string {
		if x.always {
			return usage(n) + "}"
		}
		return ""
	}
	ids := func(want bool, ids []uint32) string {
		if !want || !x.ids {
			return "null"
		}
		return string(AppendIDs(nil, ids))
	}
	prompt := append(slices.Clone(x.prompt), x.tokens(0, done)...)
	if x.kind == Chat {
		emit(`%s{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],`+
			`"prompt_token_ids":%s%s}`, head, ids(true, prompt), tail(0))
	}
	hold := 0
	for _, s := range x.stops {
		hold = max(hold, utf8.RuneCountInString(s)-1)
	}
	if x.include {
		hold = 0
	}
	var raw, text string
	sent, reason := 0, "null"
	for i := done; reason == "null"; {
		from := i
		for range x.bundle() {
			raw += x.pieces[i]
			if text = wholeChars(raw); i+1 == x.most {
				reason = `"length"`
			}
			for _, s := range x.stops {
				if at := strings.Index(text, s); at >= 0 && reason != `"stop"` {
					text, reason = text[:at], `"stop"`
					if x.include {
						text += s
					}
				}
			}
			if i++; reason != "null" {
				break
			}
		}
		end := utf8.RuneCountInString(text)
		if reason == "null" {
			end -= hold
		}
		fresh := ""
		if end > sent {
			fresh, sent = string([]rune(text)[sent:end]), end
		}
		said := quoted(t, fresh)
		if x.kind == Chat {
			emit(`%s{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":%s,"token_ids":%s}]%s}`,
				head, said, reason, ids(true, x.tokens(from, i)), tail(i-done))
		} else {
			emit(`%s{"index":0,"text":%s,"logprobs":null,"finish_reason":%s,"stop_reason":null,`+
				`"prompt_token_ids":%s,"token_ids":%s}]%s}`, head, said, reason,
				ids(from == done, prompt), ids(true, x.tokens(from, i)), tail(i-done))
		}
		if reason != "null" && x.usage {
			emit(`%s]%s,"prompt_tokens_details":{"cached_tokens":%d,"created_cache_tokens":%[3]d}}}`,
				head, usage(i-done), len(prompt))
		}
	}
	return append(events, "data: [DONE]\n\n")
}

// quoted returns a JSON string as engines write it, with tabs as two bytes.
func quoted(t *testing.T, s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// wholeChars removes the bytes of an incomplete character at the end of raw.
func wholeChars(raw string) string {
	for !utf8.ValidString(raw) {
		raw = raw[:len(raw)-1]
	}
	return raw
}

func (x *teller) tokens(from, to int) []uint32 {
	ids := make([]uint32, 0, to-from)
	for i := from; i < to; i++ {
		ids = append(ids, uint32(1000+i))
	}
	return ids
}

// randomTeller returns a teller whose answer has words, quotes, and characters of several tokens.
func randomTeller(rnd *rand.Rand) *teller {
	x := &teller{
		kind: []Kind{Completions, Chat}[rnd.IntN(2)], prompt: []uint32{1, 2, 3}, include: rnd.IntN(4) == 0, id: "a",
		usage: rnd.IntN(2) == 0, bundle: func() int { return 1 },
	}
	x.always = x.usage && rnd.IntN(2) == 0
	words := []string{
		" the", "a", " block", "\"", "\\n", "\n", "\t", "\r", "", "é", "日本", "\xf0\x9f\x98\x80", " end",
	}
	for len(x.pieces) < 40 {
		word := words[rnd.IntN(len(words))]
		for len(word) > 0 && word[0] >= utf8.RuneSelf && rnd.IntN(2) == 0 { // one token for each byte
			x.pieces = append(x.pieces, word[:1])
			word = word[1:]
		}
		x.pieces = append(x.pieces, word)
	}
	x.most = 1 + rnd.IntN(30)
	for range rnd.IntN(3) {
		stop := []rune(wholeChars(strings.Join(x.pieces, "")))
		at := rnd.IntN(len(stop) - 8)
		x.stops = append(x.stops, string(stop[at:at+1+rnd.IntN(8)]))
	}
	if rnd.IntN(3) == 0 {
		x.several, x.bundle = true, func() int { return 1 + rnd.IntN(3) }
	}
	return x
}

// want returns the settings of the request for Delivered.
func (x *teller) want(returnIDs bool) Continuation {
	c := Continuation{Greedy: true, ReturnIDs: returnIDs, Included: x.include}
	for _, s := range x.stops {
		c.Hold = max(c.Hold, utf8.RuneCountInString(s)-1)
	}
	return c
}

// Engines die within an answer, any number of times. The client gets exactly the bytes of a single engine. If
// events have several tokens, the client gets the same text, tokens and usage.
func TestDeliveredGoesOn(t *testing.T) {
	for seed := range uint64(5000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		x := randomTeller(rnd)
		asked := rnd.IntN(3) == 0
		x.ids = asked
		single := strings.Join(x.say(t, 0), "")
		x.ids = true
		d := NewDelivered(x.kind, x.want(asked))
		got := ""
		done := 0
		cuts := []int(nil)
		for {
			events := x.say(t, done)
			n := len(events)
			if len(cuts) < 3 && rnd.IntN(3) > 0 {
				n = rnd.IntN(len(events) + 1)
			}
			for _, e := range events[:n] {
				out, err := deliver(d, e, rnd)
				if err != nil {
					t.Fatalf("seed %d, cuts %v: got %v at %q, after %q; want no error", seed, cuts, err, e, got)
				}
				got += string(out)
			}
			cuts = append(cuts, n)
			if strings.HasSuffix(got, "[DONE]\n\n") {
				break
			}
			if d.Complete(x.usage) {
				got += "data: [DONE]\n\n"
				break
			}
			if why := d.Resumable(); why != "" {
				if got == "" { // no part of the answer was delivered
					d = NewDelivered(x.kind, x.want(asked))
					continue
				}
				t.Fatalf("seed %d: got %q, want that the answer can continue", seed, why)
			}
			var ids []uint32
			ids, done = d.Resume(CachedPrompt{-1, -1})
			x.id = strings.Repeat("b", len(cuts)+1)
			if want := append(slices.Clone(x.prompt), x.tokens(0, done)...); !slices.Equal(ids, want) {
				t.Fatalf("seed %d: got prompt %v, want %v", seed, ids, want)
			}
		}
		if x.several { // the boundaries of events differ
			got, single = essence(t, got), essence(t, single)
		}
		if got != single {
			t.Fatalf("seed %d, stops %q, cuts %v: got\n%s\nwant\n%s", seed, x.stops, cuts, got, single)
		}
	}
}

// deliver passes an event to d by one of the two methods of d.
func deliver(d *Delivered, e string, rnd *rand.Rand) ([]byte, error) {
	if strings.Contains(e, "usage") || strings.Contains(e, "DONE") || rnd.IntN(2) == 0 {
		return d.Event(nil, Event(e))
	}
	return d.Append(nil, []byte(e))
}

// essence returns the content of a stream, without the boundaries of events.
func essence(t *testing.T, stream string) string {
	var events Events
	var text strings.Builder
	ids := []uint32(nil)
	var rest strings.Builder
	for e := range events.Feed([]byte(stream)) {
		if e.IsDone() {
			rest.WriteString(" done")
			continue
		}
		c, ok := readChunk(e)
		if !ok {
			t.Fatalf("got %q, want a chunk", e)
		}
		ids = append(ids, readIDs(c.ids.of(e))...)
		text.WriteString(rawjson.Text(c.text.of(e)))
		if c.count == 0 {
			rest.WriteString(" " + string(c.usage.of(e)))
		}
		if c.finish {
			rest.WriteString(" finish")
		}
		rest.WriteString(string(c.id.of(e)[:2]) + string(c.created.of(e)[:1]))
	}
	said := rest.String()
	return fmt.Sprint(text.String(), ids, strings.Count(said, `"b`), said[strings.Index(said, " "):])
}

// If tokens are sampled, another engine cannot repeat the delivered text. So a stream continues only if the
// new engine does not have to repeat text.
func TestDeliveredSampled(t *testing.T) {
	const role = `data: {"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":""},` +
		`"finish_reason":null}],"prompt_token_ids":[1,2]}` + "\n\n"
	said := func(text, ids string) string {
		return `data: {"id":"a","choices":[{"index":0,"delta":{"content":"` + text +
			`"},"finish_reason":null,"token_ids":` + ids + "}]}\n\n"
	}
	for _, c := range []struct {
		name   string
		want   Continuation
		events []string
		ids    string // want: the next prompt; "" if the stream cannot continue
	}{
		{"text with every token", Continuation{}, []string{role, said("a", "[3]"), said("b", "[4]")}, "[1 2 3 4]"},
		{
			"a character begun, which is drawn anew",
			Continuation{},
			[]string{role, said("a", "[3]"), said("", "[4]")},
			"[1 2 3]",
		},
		{
			"the client has its id",
			Continuation{ReturnIDs: true},
			[]string{role, said("a", "[3]"), said("", "[4]")},
			"",
		},
		{"several tokens in an event", Continuation{}, []string{role, said("a", "[3]"), said("bc", "[4,5]")}, ""},
		{"text held back", Continuation{Hold: 3}, []string{role, said("", "[3]"), said("a", "[4]")}, ""},
		{
			"greedy, text held back",
			Continuation{Greedy: true, Hold: 3},
			[]string{role, said("", "[3]"), said("a", "[4]")},
			"[1 2]",
		},
		{"nothing but the role", Continuation{}, []string{role}, "[1 2]"},
		{
			"reasoning",
			Continuation{Greedy: true},
			[]string{role, strings.Replace(said("a", "[3]"), "content", "reasoning", 1)},
			"",
		},
		{"no ids", Continuation{Greedy: true}, []string{role, said("a", "null")}, ""},
		{"no ids of the prompt", Continuation{Greedy: true}, []string{said("a", "[3]")}, ""},
		{
			"an end that was delivered",
			Continuation{},
			[]string{role, strings.Replace(said("a", "[3]"), ":null", `:"stop"`, 1)},
			"",
		},
	} {
		d := NewDelivered(Chat, c.want)
		for _, e := range c.events {
			if _, err := d.Append(nil, []byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		if d.Resumable() == "" {
			ids, _ := d.Resume(CachedPrompt{-1, -1})
			got = fmt.Sprint(ids)
		}
		if got != c.ids {
			t.Errorf("%s: got prompt %q, want %q", c.name, got, c.ids)
		}
	}
}

// Delivered detects an engine that does not repeat the delivered text.
func TestDeliveredDiverges(t *testing.T) {
	const first = `data: {"id":"a","choices":[{"index":0,"text":"","finish_reason":null,` +
		`"prompt_token_ids":[1],"token_ids":[3]}]}` + "\n\n" +
		`data: {"id":"a","choices":[{"index":0,"text":"ab","finish_reason":null,"prompt_token_ids":null,` +
		`"token_ids":[4]}]}` + "\n\n"
	for _, c := range []struct{ name, event string }{
		{"another token", `{"id":"b","choices":[{"index":0,"text":"","finish_reason":null,"token_ids":[9]}]}`},
		{"other text", `{"id":"b","choices":[{"index":0,"text":"x","finish_reason":null,"token_ids":[3,4]}]}`},
		{"an early end", `{"id":"b","choices":[{"index":0,"text":"","finish_reason":"stop","token_ids":[3]}]}`},
		{"an early end of the stream", `{"id":"b","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`},
		{"a tool call", `{"id":"b","choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]},` +
			`"finish_reason":null,"token_ids":[3]}]}`},
		{"no chunk", `{"object":"b"}`},
	} {
		d := NewDelivered(Completions, Continuation{Greedy: true, Hold: 4})
		if _, err := d.Append(nil, []byte(first)); err != nil {
			t.Fatal(err)
		}
		if d.Resume(CachedPrompt{-1, -1}); d.Tokens() != 2 {
			t.Fatalf("got %d tokens, want 2", d.Tokens())
		}
		if out, err := d.Append(nil, []byte("data: "+c.event+"\n\n")); !errors.Is(err, ErrDiverged) ||
			len(out) > 0 {
			t.Errorf("%s: got %q, %v; want ErrDiverged and no output", c.name, out, err)
		}
	}
}

// Delivered removes text that an engine repeats, in any notation of the engine's JSON.
func TestDeliveredLeavesOutWhatIsSaidAgain(t *testing.T) {
	const said = `data: {"id":"a","choices":[{"index":0,"text":"%s","finish_reason":null,` +
		`"prompt_token_ids":[1],"token_ids":%s}]}` + "\n\n"
	d := NewDelivered(Completions, Continuation{Greedy: true})
	if _, err := d.Append(nil, fmt.Appendf(nil, said, "abcd", "[3,4]")); err != nil {
		t.Fatal(err)
	}
	d.Resume(CachedPrompt{-1, -1})
	// Without its first four letters, the string is as long as \u0009.
	out, err := d.Append(nil, fmt.Appendf(nil, said, `abcd\t`, "[3,4,5]"))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := readChunk(Event(out))
	if got := string(c.text.of(out)); got != `"\t"` {
		t.Errorf(`got %s after the delivered text, want "\t"`, got)
	}
}

func TestContinuation(t *testing.T) {
	for _, c := range []struct {
		body, why string
		want      Continuation
	}{
		{`"temperature":0`, "", Continuation{Greedy: true}},
		{
			`"temperature":0.0,"user":"u","seed":1,"n":1,"echo":false,"bad_words":[],"logprobs":null`, "",
			Continuation{Greedy: true},
		},
		{
			`"temperature":"0","stop":["ab","日本語"],"return_token_ids":true`, "",
			Continuation{Greedy: true, Hold: 2, ReturnIDs: true},
		},
		{
			`"temperature":0,"stop":"x","include_stop_str_in_output":true,"presence_penalty":0`, "",
			Continuation{Greedy: true, Included: true},
		},
		{`"temperature":0.7,"repetition_penalty":1.1`, "", Continuation{}},
		{`"temperature":null`, "", Continuation{}},
		{`"presence_penalty":0.1`, "presence_penalty", Continuation{}},
		{`"logprobs":1`, "logprobs", Continuation{}},
		{`"echo":true`, "echo", Continuation{}},
		{`"n":2`, "n other than 1", Continuation{}},
		{`"best_of":2`, "best_of other than 1", Continuation{}},
		{`"response_format":{"type":"json_object"}`, "response_format", Continuation{}},
		{`"response_format":{"type":"text"}`, "", Continuation{}},
		{`"structured_outputs":{"regex":"a"}`, "structured_outputs", Continuation{}},
		{`"vllm_xargs":{"a":1}`, "vllm_xargs", Continuation{}},
		{`"a_member_of_tomorrow":1`, "a_member_of_tomorrow", Continuation{}},
		{`"max_tokens":null`, "max_tokens null", Continuation{}},
		{`"stop":"` + strings.Repeat("x", MaxHold+2) + `"`, "stop", Continuation{}},
		{`"spaces_between_special_tokens":false`, "spaces_between_special_tokens", Continuation{}},
		{`"stream":false`, "not streamed", Continuation{}},
	} {
		r, err := Parse(Completions, []byte(`{"prompt":"a","stream":true,`+c.body+`}`), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got, why := r.Continuation(); why != c.why || why == "" && got != c.want {
			t.Errorf("%s: got %+v %q, want %+v %q", c.body, got, why, c.want, c.why)
		}
	}
	chat, err := Parse(Chat, []byte(
		`{"messages":[{"role":"user","content":"a"}],"stream":true,"tools":[{"type":"function"}],"temperature":0}`,
	), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, why := chat.Continuation(); why != "tools" {
		t.Errorf("chat with tools: got %q, want tools", why)
	}
}

func TestContinueFrom(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		body, want string
	}{
		{
			Completions, `{"prompt":"a","max_tokens":9,"min_tokens":3}`,
			`{"prompt":[1,2],"max_tokens":4,"min_tokens":0}`,
		},
		{
			Completions, `{"prompt":["a","b"],"min_tokens":null}`,
			`{"prompt":[1,2],"min_tokens":null,"max_tokens":11}`,
		},
		{
			Chat, `{"messages":[{}],"max_tokens":8,"max_completion_tokens":"9","min_tokens":7}`,
			`{"messages":[{}],"max_tokens":3,"max_completion_tokens":4,"min_tokens":2}`,
		},
		{Chat, `{"messages":[{}],"max_tokens":null}`, `{"messages":[{}],"max_tokens":null}`},
	} {
		r, err := Parse(c.kind, []byte(c.body), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.ContinueFrom([]byte("[1,2]"), 5).Append(nil)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.body, got, c.want)
		}
	}
}

func BenchmarkDelivered(b *testing.B) {
	event := `data: {"id":"cmpl-t","object":"text_completion","created":1795242179,"model":"tiny",` +
		`"choices":[{"index":0,"text":" word","logprobs":null,` +
		`"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[1623]}]}` + "\n\n"
	chunk := []byte(strings.Repeat(event, 64))
	d := NewDelivered(Completions, Continuation{Greedy: true})
	dst, _ := d.Append(nil, chunk)
	b.ReportAllocs()
	for b.Loop() {
		d.ids = d.ids[:0]
		dst, _ = d.Append(dst[:0], chunk)
	}
}
