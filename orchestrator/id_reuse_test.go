package orchestrator

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// messages and responses are the usual requests to the two other APIs.
func messages(stream bool) prompt {
	return post("/v1/messages", `{"model":"sim","max_tokens":12,"temperature":0,`+plainStreaming(stream)+
		`"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"`+words(120)+`"}]}]}`)
}

func responses(stream bool) prompt {
	return post("/v1/responses", `{"model":"sim","max_output_tokens":12,"temperature":0,`+plainStreaming(stream)+
		`"instructions":"Be brief.","input":"`+words(120)+`"}`)
}

func plainStreaming(stream bool) string {
	if stream {
		return `"stream":true,`
	}
	return ""
}

// otherPiece has the fields of interest of an answer of the other APIs, or of an event.
type otherPiece struct {
	Type    string
	Status  string
	Message string
	Stop    string `json:"stop_reason"`
	Content []struct{ Text string }
	Output  []struct{ Content []struct{ Text string } }
	Delta   json.RawMessage
	Usage   *otherUsage
	Choices json.RawMessage // set in answers of the usual APIs, which heard.take has read
	Reply   *struct {
		Status string
		Usage  *otherUsage
	} `json:"response"`
}

type otherUsage struct {
	Input   int `json:"input_tokens"`
	Output  int `json:"output_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// takeOther reads the answers of the other APIs.
func (h *heard) takeOther(data string) {
	var c otherPiece
	if json.Unmarshal([]byte(data), &c) != nil || c.Choices != nil {
		return
	}
	switch c.Type {
	case "content_block_delta":
		var d struct{ Text string }
		_ = json.Unmarshal(c.Delta, &d)
		h.text += d.Text
	case "response.output_text.delta":
		var text string
		_ = json.Unmarshal(c.Delta, &text)
		h.text += text
	case "message_delta":
		var d struct {
			Stop string `json:"stop_reason"`
		}
		_ = json.Unmarshal(c.Delta, &d)
		h.finish = d.Stop
	case "message_stop":
		h.dones++
	case "response.completed":
		h.dones++
		h.finish, c.Usage = c.Reply.Status, c.Reply.Usage
	case "error":
		if h.fail.Message == "" {
			h.fail.Message = c.Message
		}
		if h.fail.Code = h.status; len(h.events) > 0 {
			h.fail.Code = 502 // the events of these APIs have no codes
		}
	case "":
		if h.finish = c.Status; c.Usage == nil {
			return // a chat completion
		}
		for _, o := range c.Output {
			for _, part := range o.Content {
				h.text += part.Text
			}
		}
	case "message":
		h.finish = c.Stop
		for _, part := range c.Content {
			h.text += part.Text
		}
	}
	if u := c.Usage; u != nil && c.Type != "message_start" {
		h.usage = usage{Prompt: u.Input, Completion: u.Output}
		h.usage.Prompt += u.Written + u.Read // in messages
		h.usage.Details.Cached = u.Details.Cached + u.Read
	}
}

// errorEnds reports whether a stream of this API ends with its error.
func errorEnds(p prompt, got *heard) bool {
	last := len(got.events) - 1
	if p.path == "/v1/messages" || p.path == "/v1/responses" {
		return got.dones == 0 && strings.HasPrefix(got.events[last], `{"type":"error",`) &&
			strings.Contains(got.raw, "event: error\n")
	}
	return got.dones == 1 && got.events[last] == "[DONE]" && strings.Contains(got.events[last-1], `"error"`)
}

// All tests of failures of a chat also hold for the other APIs.
func TestStoriesOfTheOtherAPIs(t *testing.T) {
	for _, s := range stories {
		if !slices.Contains(cmpSlice(s.orders, sequential), connector.Sequential) {
			continue
		}
		for _, stream := range cmpSlice(s.stream, []bool{true, false}) {
			for _, p := range []prompt{messages(stream), responses(stream)} {
				s := s
				if p.path == "/v1/responses" && stream {
					s.asResponses()
				}
				t.Run(fmt.Sprintf("%s%s/stream=%v", s.name, p.path, stream), func(t *testing.T) {
					in(t, setup{}, func(w *world) {
						s.tell(w, p)
						for _, leg := range w.posts(false) {
							if leg.path != "/v1/completions" && leg.path != p.path {
								t.Errorf("a leg to %s", leg.path)
							}
						}
					})
				})
			}
		}
	}
}

// asResponses adapts a test to /v1/responses. Its streams have four events before the first content, and a
// failed KV transfer cuts the connection.
func (s *story) asResponses() {
	switch s.name {
	case "the stream is cut":
		s.at = map[string]trouble{"decode": fault(enginesim.Fault{Kind: "cut_stream", After: 7})}
	case "the stream goes silent":
		s.at = map[string]trouble{"decode": fault(enginesim.Fault{Kind: "stall_stream", After: 7})}
	case "the transfer always fails":
		s.code, s.kind = 502, "broken"
	}
}

// The prefill leg is a completion of the token ids. The decode leg is the client's body on its own path,
// with only the params added.
func TestOtherAPIsAreSplit(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, stream := range []bool{false, true} {
			for _, p := range []prompt{messages(stream), responses(stream)} {
				w.wire.forget()
				w.exact(p, w.ask(p))
				legs := w.posts(false)
				if len(legs) != 2 || legs[0].path != "/v1/completions" || legs[1].path != p.path {
					t.Fatalf("%s: legs %+v", p.path, legs)
				}
				if !strings.HasPrefix(legs[1].body, strings.TrimSuffix(p.body, "}")+`,"kv_transfer_params":{`) ||
					!strings.Contains(legs[1].body, `"prompt_token_ids":[`) {
					t.Errorf("%s: the decode leg is %s", p.path, legs[1].body)
				}
				if rec := w.o.ring.Newest(1)[0]; rec.Mode != "split" || rec.Prompt < 120 {
					t.Errorf("%s: record %+v", p.path, rec)
				}
			}
		}
	})
}

// A request that cannot be split goes unchanged to one replica, and the record says why. The simulated
// engine refuses most of the requests below, as vLLM does with default settings; then its refusal is the
// answer.
func TestOtherAPIsUnsplit(t *testing.T) {
	say := func(path, more string) prompt {
		if path == "/v1/messages" {
			return post(path,
				`{"model":"sim","max_tokens":3,"temperature":0,`+more+`"messages":[{"role":"user","content":"a b c"}]}`)
		}
		return post(path, `{"model":"sim","max_output_tokens":3,"temperature":0,`+more+`"input":"a b c"}`)
	}
	for _, c := range []struct {
		p    prompt
		why  string
		edit func(*setup)
	}{
		{say("/v1/responses", `"tools":[{"type":"web_search"}],`), "built-in tools", nil},
		{say("/v1/responses", `"background":true,`), "background", nil},
		{say("/v1/responses", `"previous_response_id":"resp_1",`), "previous_response_id", nil},
		{say("/v1/responses", `"truncation":"auto",`), "truncation", nil},
		{say("/v1/messages", `"tools":[{"type":"web_search_20250305","name":"w"}],`), "built-in tools", nil},
		{post("/v1/messages", `{"model":"sim","max_tokens":3,"temperature":0,"messages":[{"role":"user",`+
			`"content":[{"type":"image"},{"type":"text","text":"a"}]}]}`), "content that is not text", nil},
		{say("/v1/messages", ""), "no engine renders /v1/messages", func(s *setup) {
			s.engine = func(_ string, o *enginesim.Options) { o.ScaleOut = false }
		}},
		{say("/v1/responses", ""), "not every decode replica takes token ids on /v1/responses", func(s *setup) {
			s.engine = func(name string, o *enginesim.Options) {
				if name == "d1" {
					o.Version = "0.26.0"
				}
			}
		}},
		{say("/v1/responses", ""), "no engine renders /v1/responses", func(s *setup) {
			s.config = func(c *config.Config) { c.Tokenizer.Source = config.TokensNone }
		}},
	} {
		t.Run(c.why+c.p.path, func(t *testing.T) {
			s := setup{}
			if c.edit != nil {
				c.edit(&s)
			}
			in(t, s, func(w *world) {
				if got, want := w.ask(c.p), w.right(c.p); want.status == 200 {
					w.exact(c.p, got)
				} else if got.status != want.status || got.raw != want.raw {
					t.Errorf("the answer is %d %s\nan engine alone answers %d %s",
						got.status, got.raw, want.status, want.raw)
				}
				rec := w.o.ring.Newest(1)[0]
				if legs := w.posts(false); len(legs) != 1 || legs[0].path != c.p.path ||
					strings.Contains(legs[0].body, "_transfer_params") {
					t.Errorf("legs %+v", legs)
				}
				if rec.Mode != "unsplit" || !strings.Contains(rec.Reason, "not split: "+c.why) {
					t.Errorf("mode %s, reason: %s", rec.Mode, rec.Reason)
				}
			})
		})
	}
}

// The client's usage reports the tokens that the prefill engine had cached, under the names of each API.
func TestUsageOfTheOtherAPIs(t *testing.T) {
	for _, version := range []string{"0.32.0", "0.27.0"} {
		for _, p := range []prompt{messages(true), messages(false), responses(true), responses(false)} {
			in(t, setup{prefill: 1, decode: 1, engine: func(_ string, o *enginesim.Options) { o.Version = version }},
				func(w *world) {
					first, second := w.ask(p), w.ask(p)
					w.exact(p, second)
					cached := (second.usage.Prompt - 1) / 16 * 16
					if a, b := first.usage.Details.Cached, second.usage.Details.Cached; a != 0 || b != cached {
						t.Errorf("%s %s: cached tokens %d, then %d, want 0 and %d of %d",
							version, p.path, a, b, cached, second.usage.Prompt)
					}
				})
		}
	}
}

// A split answer reports its prompt tokens and cached tokens as one engine would, for a first and for a
// repeated request. In messages every prompt token counts once: as read from the cache, as written to the
// cache, or as neither.
func TestUsageIsThatOfOneEngine(t *testing.T) {
	said := regexp.MustCompile(`"usage":(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})`)
	usages := func(h *heard) []string {
		return said.FindAllString(strings.Join(append(h.events, h.raw), "\n"), -1)
	}
	for _, cacheless := range []bool{false, true} {
		for _, p := range []prompt{
			messages(true), messages(false), responses(true), responses(false), chat(true), chat(false),
			completion(true), completion(false),
		} {
			s := setup{
				prefill: 1, decode: 1,
				engine: func(_ string, o *enginesim.Options) { o.Core.NoPrefixCaching = cacheless },
			}
			in(t, s, func(w *world) {
				for range 2 {
					got, want := usages(w.ask(p)), usages(w.right(p))
					if legs := w.posts(false); len(legs) != 2 || len(want) == 0 {
						t.Fatalf("%s: %d legs, and one engine reports %v", p.path, len(legs), want)
					}
					w.wire.forget()
					if !slices.Equal(got, want) {
						t.Errorf("%s, without a prefix cache: %v:\n%v\none engine reports\n%v", p.path, cacheless, got, want)
					}
				}
			})
		}
	}
}

// An error of the router or of a prefill leg has the form of the client's API.
func TestErrorsOfTheOtherAPIs(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for path, want := range map[string]string{
			"/v1/messages":  `{"type":"error","error":{"type":"invalid_request_error","message":`,
			"/v1/responses": `{"error":{"message":`,
		} {
			if got := w.ask(post(path, `{"model":`)); got.status != 400 || !strings.HasPrefix(got.raw, want) {
				t.Errorf("%s: %d %s", path, got.status, got.raw)
			}
		}
		w.at("prefill", func(at string) { fail(400)(w, w.by(at)) })
		if got := w.ask(messages(false)); got.status != 400 || !strings.HasPrefix(got.raw,
			`{"type":"error","error":{"type":"invalid_request_error","message":"injected`) {
			t.Errorf("%d %s", got.status, got.raw)
		}
	})
}

// After the first content, events reach the client when the engine sends them.
func TestOtherAPIsFlow(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, p := range []prompt{messages(true), responses(true)} {
			got := w.ask(p)
			want := make([]time.Duration, 12)
			for i := range want {
				want[i] = prefillStep + transfer + time.Duration(i+1)*decodeStep
			}
			if times := slices.Compact(slices.Clone(got.when)); !slices.Equal(times, want) {
				t.Errorf("%s: events at %v, want %v", p.path, times, want)
			}
			if n := len(got.events); p.path == openai.Responses.Path() &&
				(n < 16 || !strings.Contains(got.events[n-1], `"response.completed"`)) {
				t.Errorf("%d events, the last %s", n, got.events[n-1])
			}
		}
	})
}

// A failed KV transfer that shows only as a cut connection can be the fault of either engine. The retry
// avoids both.
func TestCutResponsesAvoidTheirPrefill(t *testing.T) {
	in(t, setup{}, func(w *world) {
		refused := false
		w.at("prefill", func(at string) {
			if !refused {
				refused = true
				w.net.Refuse(w.by(at).side, true)
			}
		})
		p := responses(true)
		w.exact(p, w.ask(p))
		legs := w.posts(false)
		if len(legs) != 4 || legs[2].engine == legs[0].engine || legs[3].engine == legs[1].engine {
			t.Errorf("legs %+v", legs)
		}
	})
}

// The router sees the last event of a stream even if it arrives alone. A stream without that event does
// not count as complete.
func TestOtherAPIsEnd(t *testing.T) {
	for path, events := range map[string][]string{
		"/v1/messages": {
			`{"type":"message_start","message":{"id":"x"}}`,
			`{"type":"content_block_delta","delta":{"type":"text_delta","text":" a"},"index":0}`,
			`{"type":"message_stop"}`,
		},
		"/v1/responses": {
			`{"type":"response.created"}`, `{"type":"response.output_text.delta","delta":" a"}`,
			`{"type":"response.incomplete","response":{"status":"incomplete"}}`,
		},
	} {
		for _, whole := range []bool{true, false} {
			in(t, setup{}, func(w *world) {
				p := messages(true)
				if path == "/v1/responses" {
					p = responses(true)
				}
				sent := events
				if !whole {
					sent = events[:2]
				}
				w.at("decode", func(at string) { w.wire.scripted(at, streamOf(sent...)) })
				got := w.ask(p)
				if got.status != 200 || strings.Contains(got.raw, "event: error") == whole {
					t.Errorf("%s, whole %v: %d %s", path, whole, got.status, got.raw)
				}
			})
		}
	}
}

// Chunks that may contain the last event are parsed; all others are not.
func TestLastEventsAreRead(t *testing.T) {
	for kind, last := range map[openai.Kind]string{
		openai.Messages: `{"type":"message_stop"}`, openai.Responses: `{"type":"response.failed"}`,
	} {
		a := &eventReader{kind: kind}
		if other := []byte(
			"data: {\"type\":\"content_block_delta\"}\n\n",
		); a.plain([]byte("data: "+last+"\n\n")) != 0 || a.plain(other) != len(other) {
			t.Errorf("%s: the last event is not parsed, or other events are", kind.Path())
		}
	}
}
