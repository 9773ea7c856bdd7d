package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/picker"
)

// gateway plays a gateway. It sends no request to an engine; it gives the router the parts of a prepared
// answer.
type gateway struct {
	allows func(role replica.Role, address string) bool // nil: all are allowed
	refuse error                                        // the error of Send
	// each a part, an error of Next, a time to wait, or a func()
	say  []any
	deaf error // the error of Give

	to  *picker.Destination
	got []byte
}

var errGateway = errors.New("the gateway has gone")

func (g *gateway) Allows(role replica.Role, address string) bool {
	return g.allows == nil || g.allows(role, address)
}

func (g *gateway) Send(to *picker.Destination) error {
	g.to = to
	return g.refuse
}

func (g *gateway) Next(ctx context.Context) (picker.Part, error) {
	for len(g.say) > 0 {
		next := g.say[0]
		switch next := next.(type) {
		case time.Duration:
			began := time.Now()
			select {
			case <-time.After(next):
			case <-ctx.Done():
				g.say[0] = next - time.Since(began)
				return picker.Part{}, context.Cause(ctx)
			}
		case func():
			next()
		case error:
			return picker.Part{}, next
		case picker.Part:
			g.say = g.say[1:]
			return next, nil
		}
		g.say = g.say[1:]
	}
	<-ctx.Done() // there are no more parts
	return picker.Part{}, context.Cause(ctx)
}

func (g *gateway) Give(body []byte) error {
	g.got = append(g.got, body...)
	return g.deaf
}

// pick asks the router for a destination of p. The client leaves after this time; 0 means never.
func (w *world) pick(p prompt, g *gateway, leave time.Duration) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	if leave > 0 {
		defer time.AfterFunc(leave, cancel).Stop()
	}
	w.mid.mu.Lock()
	w.asked++
	w.mid.mu.Unlock()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, p.path, strings.NewReader(p.body))
	if p.header != nil {
		r.Header = p.header.Clone()
	}
	out := httptest.NewRecorder()
	out.Code = 0 // no status yet
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		w.o.Picker()(out, r, g)
	}()
	return out
}

// newest returns the record of the newest request.
func (w *world) newest() *observe.Record {
	w.t.Helper()
	all := w.o.ring.Newest(1)
	if len(all) != 1 {
		w.t.Fatal("no record")
	}
	return all[0]
}

var (
	okStream = picker.Part{Status: 200, ContentType: "text/event-stream; charset=utf-8"}
	okWhole  = picker.Part{Status: 200, ContentType: "application/json"}
)

func event(data string) picker.Part { return raw("data: " + data + "\n\n") }

func raw(body string) picker.Part { return picker.Part{Body: []byte(body)} }

func last(p picker.Part) picker.Part {
	p.End = true
	return p
}

const (
	openingChunk = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`
	wordChunk    = `{"choices":[{"index":0,"delta":{"content":" yes"}}]}`
	usageChunk   = `{"choices":[],"usage":{"prompt_tokens":130,"completion_tokens":2,"total_tokens":132}}`
	paramsChunk  = `{"choices":[{"index":0,"delta":{"content":" no"}}],` +
		`"kv_transfer_params":{"remote_host":"10.0.0.1"}}`
	wholeAnswer = `{"choices":[{"index":0,"message":{"content":" yes no"}}],` +
		`"usage":{"prompt_tokens":130,"completion_tokens":2},"kv_transfer_params":{"remote_host":"10.0.0.1"}}`
)

// hidden returns data as clients get it: without KV transfer params.
func hidden(data string) string {
	return strings.ReplaceAll(data, `{"remote_host":"10.0.0.1"}`, "null")
}

// A pick names a pair, keeps its leases until the answer has passed, and removes KV transfer params in
// both directions.
func TestAPickHoldsItsPairUntilTheAnswerHasPassed(t *testing.T) {
	for name, c := range map[string]struct {
		asked  prompt
		answer []any
		want   string
	}{
		"streamed": {
			chat(true),
			[]any{
				okStream, 200 * time.Millisecond, event(openingChunk), event(wordChunk), event(paramsChunk),
				event(usageChunk), last(event("[DONE]")),
			},
			"data: " + openingChunk + "\n\ndata: " + wordChunk + "\n\ndata: " + hidden(paramsChunk) +
				"\n\ndata: " + usageChunk + "\n\ndata: [DONE]\n\n",
		},
		"whole": {
			completion(false),
			[]any{okWhole, 300 * time.Millisecond, raw(wholeAnswer[:20]), last(raw(wholeAnswer[20:]))},
			hidden(wholeAnswer),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{}, func(w *world) {
				asked := c.asked
				asked.body = strings.Replace(asked.body, "{", `{"kv_transfer_params":{"do_remote_prefill":true},`, 1)
				held := 0
				g := &gateway{say: slices.Insert(slices.Clone(c.answer), 1, any(func() { held = w.o.Leases() }))}
				out := w.pick(asked, g, 0)
				r := w.newest()
				if r.Mode != "split" || r.Outcome != "ok" || r.Output != 2 || out.Code != 0 {
					t.Errorf("mode %s, outcome %s, %d tokens, status %d", r.Mode, r.Outcome, r.Output, out.Code)
				}
				if g.to == nil || g.to.Prefill != r.Prefill || g.to.Decode != r.Decode || g.to.ID != r.ID {
					t.Errorf("destination %+v, but the record has %s and %s", g.to, r.Prefill, r.Decode)
				}
				if strings.Contains(string(g.to.Body), "kv_transfer_params") || !json.Valid(g.to.Body) {
					t.Errorf("the engines would get %s", g.to.Body)
				}
				if string(g.got) != c.want {
					t.Errorf("the client got %q\nwant %q", g.got, c.want)
				}
				if held == 0 || w.o.Leases() != 0 {
					t.Errorf("%d leases during the pick, %d after it; want some and 0", held, w.o.Leases())
				}
			})
		})
	}
}

// However a pick ends, no lease is left. Whatever does not arrive has a limit.
func TestNoEndOfAPickLeaksALease(t *testing.T) {
	stream, whole := chat(true), completion(false)
	for name, c := range map[string]struct {
		asked prompt
		g     gateway
		leave time.Duration // when the client leaves; 0: never
		ends  string        // the outcome, the status of the refusal or 0, and the duration
	}{
		"the destination cannot be told": {stream, gateway{refuse: errGateway}, 0, "client_gone 0 0s"},
		"the gateway goes at once":       {stream, gateway{say: []any{errGateway}}, 0, "client_gone 0 0s"},
		"the gateway goes later": {
			stream, gateway{say: []any{time.Second, errGateway}}, 0, "client_gone 0 1s",
		},
		"the gateway goes in an answer": {whole, gateway{say: []any{okWhole, errGateway}}, 0, "client_gone 0 0s"},
		"the gateway goes in a stream": {
			stream, gateway{say: []any{okStream, event(wordChunk), errGateway}}, 0, "client_gone 0 0s",
		},
		"the client leaves early":         {stream, gateway{}, time.Second, "client_gone 0 1s"},
		"the client leaves in the answer": {whole, gateway{say: []any{okWhole}}, time.Second, "client_gone 0 1s"},
		"the client leaves in the stream": {
			stream, gateway{say: []any{okStream, event(wordChunk)}}, time.Second, "client_gone 0 1s",
		},
		"the answer cannot be given": {
			stream, gateway{deaf: errGateway, say: []any{okStream, last(event(wordChunk))}}, 0, "client_gone 0 0s",
		},
		"no head comes":    {stream, gateway{}, 0, "timeout 504 9s"},
		"no content comes": {stream, gateway{say: []any{okStream, event(openingChunk)}}, 0, "timeout 504 9s"},
		"a stream stops": {
			stream, gateway{say: []any{okStream, time.Second, event(wordChunk)}}, 0, "timeout 504 5s",
		},
		"a whole answer does not come": {whole, gateway{say: []any{okWhole}}, 0, "answer_timeout 504 10s"},
		"the engine fails": {
			stream, gateway{say: []any{picker.Part{Status: 500}, last(raw("{}"))}}, 0, "status_500 0 0s",
		},
		"an error comes in the stream": {
			stream, gateway{say: []any{okStream, last(event(`{"error":{"code":500}}`))}}, 0, "error_event 0 0s",
		},
		"the answer has no body":  {stream, gateway{say: []any{last(okStream)}}, 0, "ok 0 0s"},
		"the answer is no answer": {whole, gateway{say: []any{okWhole, last(raw("<html>"))}}, 0, "ok 0 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{}, func(w *world) {
				began := time.Now()
				out := w.pick(c.asked, &c.g, c.leave)
				took := time.Since(began).Round(100 * time.Millisecond)
				if got := fmt.Sprint(w.newest().Outcome, " ", out.Code, " ", took); got != c.ends {
					t.Errorf("the pick ended as %s, want %s", got, c.ends)
				}
				if n := w.o.Leases(); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		})
	}
}

// An engine without a lease answers the request. The pick releases its leases at once and learns nothing
// from the answer.
func TestAPickGivesUpWhatAnotherEngineAnswers(t *testing.T) {
	in(t, setup{}, func(w *world) {
		head, held := okStream, -1
		head.Elsewhere = "10.9.9.9:8000"
		g := &gateway{say: []any{
			head, event(wordChunk), func() { held = w.o.Leases() }, time.Second, event(usageChunk),
			last(event("[DONE]")),
		}}
		w.pick(chat(true), g, 0)
		r := w.newest()
		if held != 0 || r.Outcome != "ok" || r.Output != 2 || !strings.Contains(r.Reason, "10.9.9.9:8000") {
			t.Errorf("%d leases during the answer, outcome %s, %d tokens, reason %q",
				held, r.Outcome, r.Output, r.Reason)
		}
	})
}

// If the gateway allows only one decode replica, the pick chooses it, even if no prefill replica is
// allowed as a destination. If none is allowed, it answers 503. A replica that is not allowed is never the
// destination. The gateway knows a replica by its port for gateways.
func TestAPickStaysInsideTheSubset(t *testing.T) {
	in(t, setup{config: func(c *config.Config) {
		c.Pools.Decode.Replicas[0].GatewayPort, c.Pools.Prefill.Replicas[0].GatewayPort = 9000, 9000
	}}, func(w *world) {
		for _, allowed := range []string{"d0.internal:9000", "d1.internal:8000", ""} {
			for range 4 {
				g := &gateway{
					allows: func(_ replica.Role, address string) bool { return address == allowed },
					say:    []any{okStream, event(wordChunk), last(event("[DONE]"))},
				}
				out := w.pick(chat(true), g, 0)
				switch {
				case allowed == "" && (out.Code != http.StatusServiceUnavailable || g.to != nil ||
					!strings.Contains(out.Body.String(), "The gateway allows none of the decode replicas")):
					t.Errorf("no replica is allowed: status %d, destination %+v: %s", out.Code, g.to, out.Body)
				case allowed != "" && (g.to == nil || g.to.Decode != allowed ||
					!strings.HasSuffix(g.to.Prefill, ".internal:8000")):
					t.Errorf("only %s is allowed: status %d, destination %+v", allowed, out.Code, g.to)
				}
			}
		}
	})
}

// A body that is too large gets 413 with a type that names the mistake of the client, and the limit.
func TestAPickRefusesALargeBody(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Limits.BodyBytes = 4000 }}, func(w *world) {
		g := &gateway{}
		out := w.pick(post("/v1/completions", `{"model":"sim","prompt":"`+strings.Repeat("a", 4000)+`"}`), g, 0)
		const want = `{"error":{"message":"The request body is larger than 4000 bytes, the limit of this router ` +
			`(limits.body_bytes).","type":"RequestTooLargeError","param":null,"code":413}}`
		if g.to != nil || out.Code != http.StatusRequestEntityTooLarge || out.Body.String() != want {
			t.Errorf("%d %s, want %s; destination %+v", out.Code, out.Body, want, g.to)
		}
	})
}

// However an answer is split into parts, the client gets the same bytes, without KV transfer params.
func FuzzPickedAnswer(f *testing.F) {
	f.Add("data: "+wordChunk+"\n\ndata: "+paramsChunk+"\n\ndata: [DONE]\n\n", uint16(7), true)
	f.Add(": ping\r\n\r\ndata: "+usageChunk+"\r\n\r\ndata: {", uint16(1), true)
	f.Add(wholeAnswer, uint16(40), false)
	f.Fuzz(func(t *testing.T, text string, size uint16, stream bool) {
		head := okWhole
		if stream {
			head = okStream
		}
		read := func(size int) (out []byte, tokens int) {
			var a pickedAnswer
			parts := []picker.Part{head}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				parts, rest = append(parts, raw(rest[:n])), rest[n:]
			}
			for _, p := range append(parts, last(raw(""))) {
				got, err := a.take(openai.Chat, &p, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, got...)
			}
			return out, a.output
		}
		one, tokens := read(len(text) + 1)
		many, again := read(int(size) + 1)
		if !bytes.Equal(one, many) || tokens != again {
			t.Errorf("in one part %q and %d tokens, in more parts %q and %d", one, tokens, many, again)
		}
	})
}
