package orchestrator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// bothWays is one stream in two forms: as an engine sends it without and with usage.
type bothWays struct{ plain, asked []string }

// randomAnswer returns a stream of vLLM 0.32, of an older vLLM without fingerprints, of an engine that
// ignores the usage option, or of one that always sends usage.
func randomAnswer(rnd *rand.Rand) bothWays {
	const name = `,"system_fingerprint":"vllm-1"`
	chunk := func(finish, tail string) string {
		return `data: {"id":"x","choices":[{"index":0,"text":" \"finish_reason\":\"a","finish_reason":` + finish +
			`}]` + tail + "}\n\n"
	}
	usage := `,"usage":{"prompt_tokens":9,"completion_tokens":3}`
	behind := func(name string) string { return `data: {"id":"x","choices":[]` + usage + name + "}\n\n" }
	words := make([]string, 1+rnd.IntN(5))
	for i := range words {
		words[i] = chunk("null", "")
	}
	var s bothWays
	both := func(events ...string) {
		s.plain, s.asked = append(s.plain, events...), append(s.asked, events...)
	}
	if rnd.IntN(4) == 0 {
		both(": keep-alive\n\n")
	}
	if rnd.IntN(2) == 0 {
		both(words...)
	}
	switch rnd.IntN(6) {
	case 0: // vLLM 0.20
		s.plain = append(s.plain, chunk(`"stop"`, ""))
		s.asked = append(s.asked, chunk(`"stop"`, ""), behind(""))
	case 1: // usage and fingerprint are null
		s.plain = append(s.plain, chunk(`"stop"`, `,"system_fingerprint":"vllm-1","usage":null`))
		s.asked = append(s.asked, chunk(`"stop"`, `,"system_fingerprint":null,"usage":null`), behind(name))
	case 2: // the option is ignored
		both(chunk(`"stop"`, name))
	case 3: // usage is always sent
		s = bothWays{}
		both(chunk("null", usage), chunk(`"stop"`, usage), behind(name))
	case 4: // the stream ends without a finish reason
		both(words[0])
		s.asked = append(s.asked, behind(name))
	default:
		s.plain = append(s.plain, chunk(`"length"`, name))
		s.asked = append(s.asked, chunk(`"length"`, ""), behind(name))
	}
	both("data: [DONE]\n\n")
	return s
}

// The router asks for usage although the client did not. However the engine sends usage, and however its
// stream is cut, the client gets the stream as it is without usage.
func TestUsageThatNobodyAskedForIsLeftOut(t *testing.T) {
	for seed := range uint64(4000) {
		rnd := rand.New(rand.NewPCG(seed, 32))
		s := randomAnswer(rnd)
		plain, asked := strings.Join(s.plain, ""), strings.Join(s.asked, "")
		if seed%8 == 0 {
			plain, asked = strings.ReplaceAll(plain, "\n", "\r\n"), strings.ReplaceAll(asked, "\n", "\r\n")
		}
		r := bareReader(openai.Completions)
		r.usage.unasked.on = true
		var got []byte
		for rest := []byte(asked); len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			got = r.pass(got, slices.Clone(rest[:n]))
			rest = rest[n:]
		}
		if string(got) != plain {
			t.Fatalf("seed %d: from\n%q\nthe client got\n%q\nwant\n%q", seed, asked, got, plain)
		}
		events := strings.Count(strings.ReplaceAll(plain, "\r", ""), "\n\n")
		if r.flow.events != events || !r.end.done {
			t.Errorf("seed %d: counted %d events of %d, done: %v", seed, r.flow.events, events, r.end.done)
		}
		if strings.Contains(asked, `"prompt_tokens"`) && (r.usage.promptTokens != 9 || r.usage.output != 3) {
			t.Fatalf("seed %d: counted %d prompt and %d output tokens, want 9 and 3, of %q",
				seed, r.usage.promptTokens, r.usage.output, asked)
		}
	}
}

// unasking are requests that do not ask for usage, with everything that may be special about the end of
// their streams.
var unasking = []struct {
	name, path, more string
	n                int // output tokens; 0 means 12
	stops            []int
	engine           func(string, *enginesim.Options)
}{
	{name: "a chat", path: "/v1/chat/completions"},
	{name: "a completion", path: "/v1/completions"},
	{name: "one token", path: "/v1/completions", n: 1},
	{name: "one token of a chat", path: "/v1/chat/completions", n: 1},
	{name: "one answer, as said", path: "/v1/chat/completions", more: `"n":1,`},
	{
		name: "options that ask for nothing", path: "/v1/completions",
		more: `"stream_options":{"include_usage":false},`,
	},
	{
		name: "continuous usage of none", path: "/v1/chat/completions",
		more: `"stream_options":{"continuous_usage_stats":true},`,
	},
	{
		name: "tools", path: "/v1/chat/completions", more: `"tools":[{"type":"function","function":{"name":"f"}}],`,
		engine: func(_ string, o *enginesim.Options) { o.ToolParser = true },
	},
	{name: "logprobs of a chat", path: "/v1/chat/completions", more: `"logprobs":true,"top_logprobs":1,`},
	{name: "logprobs", path: "/v1/completions", more: `"logprobs":1,`},
	{name: "an echo", path: "/v1/completions", more: `"echo":true,`},
	{name: "token ids", path: "/v1/completions", more: `"return_token_ids":true,`},
	{name: "a stop string", path: "/v1/completions", stops: []int{31, 52}},
	{name: "stop strings in a chat", path: "/v1/chat/completions", stops: []int{40, 47, 44, 60}},
	{name: "an answer without text", path: "/v1/completions", stops: []int{0, 3}},
	{name: "a chat without text", path: "/v1/chat/completions", stops: []int{0, 3}},
	{name: "an end of its own", path: "/v1/chat/completions", n: 60, engine: ends},
	{name: "bytes", path: "/v1/completions", n: 40, engine: bytewise},
	{name: "an old engine", path: "/v1/chat/completions", engine: func(_ string, o *enginesim.Options) {
		o.Version = "0.20.0"
	}},
	{name: "an engine of which too little is known", path: "/v1/completions", engine: func(
		_ string, o *enginesim.Options,
	) {
		o.Version = "0.18.0"
	}},
	{name: "usage that is forced", path: "/v1/chat/completions", engine: forced},
	{name: "usage of a completion that is forced", path: "/v1/completions", n: 1, engine: forced},
}

func forced(_ string, o *enginesim.Options) { o.ForceUsage = true }

// Split or not, the client gets exactly the bytes that one engine alone would send. The router still knows
// the token counts.
func TestStreamsAreTheSameWithUsageThatNobodyAskedFor(t *testing.T) {
	for _, c := range unasking {
		for way, set := range map[string]func(*config.Config){
			"not split": alone,
			"not to be continued": func(c *config.Config) {
				c.Local, c.Retry.Continue = config.LocalAlways, config.ContinueOff
			},
			"split": func(c *config.Config) { c.Local = config.LocalAuto },
		} {
			t.Run(c.name+", "+way, func(t *testing.T) {
				in(t, setup{prefill: 1, decode: 1, config: set, engine: c.engine}, func(w *world) {
					p := w.stopping(greedy(c.path, cmp.Or(c.n, 12), c.more), c.stops)
					got := w.ask(p)
					w.same(p, got)
					if n := strings.Count(got.raw, "\n\n"); w.forwarded() != n {
						t.Errorf("counted %d events of %d", w.forwarded(), n)
					}
					w.knowsWhatItTook(p, c.name)
				})
			})
		}
	}
}

// knowsWhatItTook checks that the record of the newest request has its token counts.
func (w *world) knowsWhatItTook(p prompt, name string) {
	w.t.Helper()
	legs := w.posts(false)
	asked := strings.Contains(legs[len(legs)-1].body, `"stream_options":{"include_usage":true}`)
	if name == "an engine of which too little is known" {
		if asked {
			w.t.Errorf("the engine was asked for usage: %s", legs[len(legs)-1].body)
		}
		return
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(p.body), &body); err != nil {
		w.t.Fatal(err)
	}
	body["stream_options"] = map[string]bool{"include_usage": true}
	raw, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	p.body = string(raw)
	want, rec := w.right(p).usage, w.o.ring.Newest(1)[0]
	if !asked || rec.Prompt != want.Prompt || rec.Output != want.Completion {
		w.t.Errorf("usage asked for: %v; the record has %d and %d tokens, want %+v",
			asked, rec.Prompt, rec.Output, want)
	}
	if local := rec.Mode != "split"; local && rec.Delivered < 0 || !local && rec.Moved < 0 {
		w.t.Errorf("a %s request: %d tokens delivered, %d moved; -1 is unknown", rec.Mode, rec.Delivered, rec.Moved)
	}
}

// If the client asks for usage itself, or if the meaning of its options is unclear, the router does not
// change the body.
func TestUsageIsNotAskedForTwice(t *testing.T) {
	for _, more := range []string{
		`"stream_options":{"include_usage":true},`,
		`"stream_options":{"include_usage":true,"continuous_usage_stats":true},`,
		`"stream_options":{"include_obfuscation":false},`,
		`"n":2,"seed":3,`,
	} {
		in(t, setup{prefill: 1, decode: 1, config: alone}, func(w *world) {
			p := greedy("/v1/chat/completions", 12, more)
			if strings.Contains(more, `"n"`) {
				p.body = strings.Replace(p.body, `"temperature":0,`, `"temperature":0.5,`, 1)
			}
			got := w.ask(p)
			if n := strings.Count(w.posts(false)[0].body, "include_usage"); n != strings.Count(more, "include_usage") {
				t.Errorf("%s: the engine got %s", more, w.posts(false)[0].body)
			}
			if strings.Contains(more, `"n"`) { // the events of the two answers come in any order
				if fmt.Sprint(byIndex(got)) != fmt.Sprint(byIndex(w.right(p))) || strings.Contains(got.raw, `"usage"`) {
					t.Errorf("two answers: %s", got.raw)
				}
				return
			}
			w.same(p, got)
		})
	}
}

// The end of each prompt in a batch has its fingerprint, and the client gets no usage.
func TestBatchesWithUsageThatNobodyAskedFor(t *testing.T) {
	in(t, setup{config: alone}, func(w *world) {
		p := prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":4,"temperature":0,"stream":true,` +
			`"prompt":["` + words(60) + `","` + words(70) + `"]}`}
		got, want := w.ask(p), w.right(p)
		fingerprints := func(h *heard) int { return strings.Count(h.raw, `"system_fingerprint":"vllm-`) }
		if fmt.Sprint(byIndex(got)) != fmt.Sprint(byIndex(want)) || got.dones != 1 ||
			strings.Contains(got.raw, `"usage"`) || fingerprints(got) != 2 || fingerprints(want) != 2 {
			t.Errorf("got %s\nwant %s", got.raw, want.raw)
		}
		for _, rec := range w.o.ring.Newest(2) {
			if rec.Output != 4 || rec.Delivered < 0 {
				t.Errorf("%d output tokens, %d delivered; want 4 and at least 0", rec.Output, rec.Delivered)
			}
		}
	})
}

// ending is the position of the event with the finish reason in a stream.
func (w *world) ending(p prompt) int { return len(w.right(p).events) - 1 }

// If an engine falls silent between the end of an answer and its usage, the client waits only briefly.
func TestTheEndOfAnAnswerIsNotHeldForLong(t *testing.T) {
	for _, mode := range []string{config.ContinueOff, config.ContinueGreedy} {
		in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
			c.Local, c.Retry.Continue = config.LocalAlways, mode
		}}, func(w *world) {
			p := greedy("/v1/chat/completions", 12, "")
			end := w.ending(p)
			fault(enginesim.Fault{Kind: "stall_stream", After: end})(w, w.d[0])
			got := w.ask(p)
			want := w.right(p)
			if len(got.events) < end || got.text != want.text || fingerprintOf(got.events[end-1]) == "" {
				t.Fatalf("%s: the client got %s", mode, got.raw)
			}
			gap := got.when[end-1] - got.when[end-2]
			if most := holdFor + holdFor/8 + decodeStep; gap > most || gap < holdFor {
				t.Errorf("%s: the end of the answer came %v after the event before it, want at most %v", mode, gap, most)
			}
			if mode == config.ContinueGreedy { // only the end of the stream is missing
				w.same(p, got)
			} else if got.fail.Code == 0 || got.dones != 1 {
				t.Errorf("%s: the stream ended with %+v and %d end marks, want an error and 1", mode, got.fail, got.dones)
			}
		})
	}
}

// Usage that arrives late is counted, and the client does not see it.
func TestUsageThatComesLate(t *testing.T) {
	const end, usage = `data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]` + "}\n\n",
		`data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3},"system_fingerprint":"vllm-2"}` +
			"\n\n"
	r := bareReader(openai.Completions)
	r.usage.unasked = unaskedUsage{on: true, name: []byte(`"vllm-1"`)}
	if got := r.pass(nil, []byte(end)); len(got) > 0 {
		t.Errorf("the end was not held back: %q", got)
	}
	got := string(r.releaseNamed(nil, r.usage.unasked.name)) // read does this if nothing has arrived
	if want := strings.Replace(end, "}]}", `}],"system_fingerprint":"vllm-1"}`, 1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got = string(r.pass(nil, []byte(usage+"data: [DONE]\n\n")))
	if got != "data: [DONE]\n\n" || r.usage.output != 3 {
		t.Errorf("got %q and %d tokens after the end, want only [DONE] and 3", got, r.usage.output)
	}
}

func fingerprintOf(event string) string { return string(openai.Fingerprint([]byte(event))) }

// The engine breaks off after the end of an answer and before its usage. The client gets the whole answer,
// as if usage had not been asked for.
func TestTheEndOfAnAnswerSurvivesItsEngine(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for _, kind := range []string{"cut_stream", "fail_stream"} {
			for _, mode := range []string{config.ContinueOff, config.ContinueGreedy} {
				in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
					c.Local, c.Retry.Continue = config.LocalAlways, mode
				}}, func(w *world) {
					p := greedy(path, 12, "")
					end := w.ending(p)
					fault(enginesim.Fault{Kind: kind, After: end})(w, w.d[0])
					got, want := w.ask(p), w.right(p)
					if mode == config.ContinueGreedy { // only the end of the stream is missing
						w.same(p, got)
						return
					}
					first, _, _ := strings.Cut(want.said(), "data: [DONE]")
					if got.dones != 1 || got.fail.Code < 500 || !strings.HasPrefix(got.said(), first+`data: {"error":`) {
						t.Errorf("%s, %s: the client got %s", path, kind, got.raw)
					}
				})
			}
		}
	}
}
