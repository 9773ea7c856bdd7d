package orchestrator

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// answerOf returns an engine's answer as bytes on the wire.
func answerOf(status int, contentType, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d x\r\nserver: uvicorn\r\ncontent-type: %s\r\ncontent-length: %d\r\n%s\r\n%s",
		status, contentType, len(body), header, body)
}

func streamOf(events ...string) string {
	var b strings.Builder
	b.WriteString(
		"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
	)
	for _, e := range events {
		e = "data: " + e + "\n\n"
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(e), e)
	}
	return b.String() + "0\r\n\r\n"
}

// says makes the replica that serves the request answer with these bytes.
func says(raw string) trouble {
	return func(w *world, at *simulated) { w.wire.scripted(at.addr, raw) }
}

const (
	errorEvent = `{"error": {"message": "KV load failure", "type": "InternalServerError", "param": null,` +
		` "code": 500}}`
	roleEvent = `{"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"sim",` +
		`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
)

// prefilled is a prefill answer with these params, for a prompt of this many tokens.
func prefilled(tokens int, params string) string {
	return answerOf(200, "application/json", "",
		fmt.Sprintf(`{"id":"cmpl-1","choices":[{"index":0,"text":" a","finish_reason":"length"}],`+
			`"usage":{"prompt_tokens":%d,"total_tokens":284,"completion_tokens":1},`+
			`"kv_transfer_params":%s}`, tokens, params))
}

// strange are tests with engines that give invalid answers.
var strange = []story{
	{
		name: "an error event instead of content", stream: streamed,
		at: map[string]trouble{"decode": says(streamOf(errorEvent, "[DONE]"))}, attempts: 2, expires: true,
	},
	{
		name: "an error event behind the role", stream: streamed,
		at: map[string]trouble{"decode": says(streamOf(roleEvent, errorEvent, "[DONE]"))}, attempts: 2,
		expires: true,
	},
	{
		name: "an error event everywhere", stream: streamed,
		at: map[string]trouble{"decode": says(streamOf(roleEvent, errorEvent, "[DONE]"))}, always: true,
		code: 500, kind: "error_event", attempts: 2, expires: true,
	},
	{
		name: "a stream that ends before content", stream: streamed,
		at: map[string]trouble{"decode": says(streamOf(roleEvent))}, attempts: 2, expires: true,
	},
	{
		name: "half an answer", stream: unstreamed,
		at:       map[string]trouble{"decode": says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\"")},
		attempts: 2, expires: true,
	},
	{
		name: "no HTTP at all", at: map[string]trouble{"decode": says("SSH-2.0-OpenSSH\r\n\r\n")}, attempts: 2,
		expires: true,
	},
	{
		name: "decode asks for patience everywhere", at: map[string]trouble{"decode": says(
			answerOf(429, "application/json", "retry-after: 7\r\n", strings.Replace(errorEvent, "500", "429", 1)),
		)},
		always: true, code: 429, kind: "status_429", attempts: 2, expires: true,
	},

	{
		name: "prefill has no params", orders: sequential, stream: streamed,
		at: map[string]trouble{"prefill": says(prefilled(283, "null"))}, attempts: 2,
	},
	{name: "prefill has params without an address", orders: sequential, at: map[string]trouble{
		"prefill": says(prefilled(283, `{"do_remote_prefill":true,"do_remote_decode":false,`+
			`"remote_block_ids":[[1,2,3]],"remote_engine_id":"x","remote_request_id":"y","remote_host":null,`+
			`"remote_port":1}`)),
	}, attempts: 2},
	{
		name: "prefill never has params", orders: sequential, stream: streamed,
		at: map[string]trouble{"prefill": says(prefilled(283, "null"))}, always: true,
		code: 502, kind: "bad_params", attempts: 2,
	},
	{
		name: "prefill counted another prompt", at: map[string]trouble{"prefill": says(prefilled(7, "null"))},
		attempts: 2,
	},
	{
		name: "prefill says no JSON",
		at:   map[string]trouble{"prefill": says(answerOf(200, "text/html", "", "<html>"))}, attempts: 2,
	},
	{
		name:     "prefill says half an answer",
		at:       map[string]trouble{"prefill": says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\"")},
		attempts: 2,
	},
}

func TestStrangeEngines(t *testing.T) { tellAll(t, strange, nil) }

// The client gets a 429 of the engines with their message and their Retry-After.
func TestEnginesRetryAfterReachesTheClient(t *testing.T) {
	in(t, setup{}, func(w *world) {
		body := `{"error":{"message":"Too many requests.","type":"RateLimitError","param":null,"code":429}}`
		for _, d := range w.d {
			w.wire.scripted(d.addr,
				answerOf(429, "application/json", "retry-after: 7\r\nendpoint-load-metrics: TEXT a=1\r\n", body))
		}
		got := w.ask(chat(true))
		if got.status != 429 || got.raw != body || got.header.Get("Retry-After") != "7" {
			t.Errorf("%d %s %v", got.status, got.raw, got.header)
		}
		w.silent(got)
	})
}

// A failure after the first content ends the stream with the engine's own error, once, however its events
// are split into reads.
func TestErrorEventBehindContent(t *testing.T) {
	for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
		for _, bite := range []int{0, 1, 16, 100} {
			in(t, setup{order: order}, func(w *world) {
				first := strings.Fields(w.right(chat(true)).text)[0]
				content := strings.Replace(roleEvent, `"content":""`, `"content":" `+first+`"`, 1)
				w.wire.bite = bite
				w.at("decode",
					func(at string) { w.wire.scripted(at, streamOf(roleEvent, content, errorEvent, "[DONE]")) })
				got := w.ask(chat(true))
				w.failed(chat(true), got, 500)
				if strings.TrimSpace(got.text) != first || strings.Count(got.raw, `"error"`) != 1 || got.dones != 1 {
					t.Errorf("with reads of %d bytes the client got %s", bite, got.raw)
				}
			})
		}
	}
}

// If only the end of the connection ends an answer, it may have been cut. It counts as complete only with
// complete JSON or an end marker.
func TestAnswersThatEndWithTheirConnection(t *testing.T) {
	const whole = `{"id":"cmpl-1","choices":[{"index":0,"text":" a","finish_reason":"stop"}]}`
	event := "data: " + strings.Replace(roleEvent, `"content":""`, `"content":"a"`, 1) + "\n\n"
	split, passed := completion(false), post("/v1/completions", `{"model":"sim","prompt":"a","echo":true}`)
	other := post("/v1/responses", `{"model":"sim","input":"a","truncation":"auto"}`)
	streams := post("/v1/responses", `{"model":"sim","input":"a","stream":true,"truncation":"auto"}`)
	for _, head := range []string{"HTTP/1.1 200 OK\r\nconnection: close\r\n", "HTTP/1.0 200 OK\r\n"} {
		for _, tt := range []struct {
			name, body string
			p          prompt
			well       bool
		}{
			{"whole, split", whole, split, true},
			{"whole, passed", whole, passed, true},
			{"whole, of another API", whole, other, true},
			{"half, split", whole[:40], split, false},
			{"half, passed", whole[:40], passed, false},
			{"half, of another API", whole[:40], other, false},
			{"nothing", "", other, false},
			{"two", whole + whole, other, false},
			{
				"stream with its end", event + `data: {"type":"response.completed","response":{"output":[]}}` + "\n\n",
				streams, true,
			},
			{"stream without its end", event, streams, false},
			{"stream, cut in an event", event + `data: {"ty`, streams, false},
			{"split stream without its end", event, chat(true), false},
		} {
			in(t, setup{config: func(c *config.Config) { c.Retry.Attempts = 1 }}, func(w *world) {
				kind := "application/json"
				if strings.HasPrefix(tt.body, "data:") {
					kind = "text/event-stream"
				}
				for _, d := range w.d {
					w.wire.scripted(d.addr, head+"content-type: "+kind+"\r\n\r\n"+tt.body)
				}
				got := w.ask(tt.p)
				if well := got.status == 200 && !strings.Contains(got.raw, `"error"`); well != tt.well {
					t.Errorf("%s: %d %s", tt.name, got.status, got.raw)
				}
			})
		}
	}
}

// A compressed answer is refused, not passed to the client as if it were plain text. The router asks
// engines not to compress.
func TestCompressedAnswersAreRefused(t *testing.T) {
	for _, p := range []prompt{
		completion(false), chat(true), post("/v1/embeddings", `{"model":"sim","input":"a"}`),
	} {
		in(t, setup{}, func(w *world) {
			for _, d := range w.d {
				for range 2 {
					w.wire.scripted(d.addr,
						answerOf(200, "application/json", "content-encoding: gzip\r\n", "\x1f\x8b\x08not really"))
				}
			}
			if got := w.ask(p); got.status != 502 {
				t.Errorf("%s: %d %q", p.path, got.status, got.raw)
			}
			for _, leg := range w.posts(true) {
				if leg.header.Get("Accept-Encoding") != "identity" {
					t.Errorf("%s may use the encoding %q, want identity", leg.engine, leg.header.Get("Accept-Encoding"))
				}
			}
		})
	}
}

// A stream that ends properly on the wire but lacks its end marker does not count as complete.
func TestStreamWithoutEndMarker(t *testing.T) {
	in(t, setup{}, func(w *world) {
		first := strings.Fields(w.right(chat(true)).text)[0]
		content := strings.Replace(roleEvent, `"content":""`, `"content":" `+first+`"`, 1)
		w.at("decode", func(at string) { w.wire.scripted(at, streamOf(roleEvent, content)) })
		w.failed(chat(true), w.ask(chat(true)), 502)
	})
}

// Internal facts of engines do not reach clients: load headers, and KV transfer params in whole answers,
// in streams and in unsplit requests.
func TestAnswersAreScrubbed(t *testing.T) {
	const secret = `"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"p0.internal",` +
		`"remote_block_ids":[[1]]}`
	const load = "endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=0.5\r\nserver: uvicorn\r\n" +
		"x-engine: p0.internal:8000\r\n"
	chunk := strings.TrimSuffix(strings.Replace(roleEvent, `"content":""`, `"content":"a"`, 1), "}") + "," +
		secret + "}"
	whole := `{"id":"cmpl-1","output":[],"choices":[{"index":0,"text":"a","finish_reason":"stop"}],` + secret +
		`}`
	in(t, setup{}, func(w *world) {
		for _, p := range []prompt{
			chat(true), completion(false), post("/v1/completions", `{"model":"sim","prompt":"a","echo":true}`),
			post("/v1/responses", `{"model":"sim","input":"a"}`),
			post("/v1/responses", `{"model":"sim","input":"a","stream":true}`),
			post("/v1/completions", `{"model":"sim","prompt":["a","b"]}`),
			post("/v1/completions", `{"model":"sim","prompt":["a","b"],"stream":true}`),
		} {
			w.wire.forget()
			for _, d := range w.d {
				raw := answerOf(200, "application/json", load, whole)
				if strings.Contains(p.body, `"stream":true`) {
					raw = strings.Replace(streamOf(chunk, "[DONE]"), "transfer-encoding", load+"transfer-encoding", 1)
				}
				w.wire.scripted(d.addr, raw)
				w.wire.scripted(d.addr, raw)
			}
			got := w.ask(p)
			if got.status != 200 || !strings.Contains(got.raw, `"a"`) {
				t.Errorf("%s: %d %s", p.path, got.status, got.raw)
			}
			w.silent(got)
		}
	})
}

// The two legs of an attempt have the same request id, and a retry has another one.
func TestLegsBelongTogether(t *testing.T) {
	in(t, setup{}, func(w *world) {
		w.at("decode", func(at string) {
			w.at("decode", nil)
			fault(enginesim.Fault{Kind: "fail", Status: 503})(w, w.by(at))
		})
		got := w.ask(completion(true))
		w.exact(completion(true), got)
		legs := w.posts(false)
		if len(legs) != 4 {
			t.Fatalf("%d legs, want 4", len(legs))
		}
		id := got.header.Get("X-Request-Id")
		for i, want := range []string{id, id, id + "-r1", id + "-r1"} {
			if legs[i].header.Get("X-Request-Id") != want {
				t.Errorf("leg %d has id %q, want %q", i, legs[i].header.Get("X-Request-Id"), want)
			}
		}
		if legs[1].engine == legs[3].engine {
			t.Error("the retry went to the failed replica")
		}
		if a, b := params(legs[1]), params(legs[3]); a == b || a == "" {
			t.Errorf("params were used twice: %s", a)
		}
	})
}

func params(leg sent) string {
	_, after, _ := strings.Cut(leg.body, `"remote_request_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

// The router drops a client that does not read after timeouts.client_write, and then everything it held is
// free again.
func TestClientDoesNotRead(t *testing.T) {
	in(t, setup{}, func(w *world) {
		long := chat(true)
		long.body = strings.Replace(long.body, `"max_tokens":12`, `"max_tokens":2000`, 1)
		w.asked++
		c, err := w.net.Dial(w.t.Context(), "tcp", "front:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			long.path, len(long.body), long.body)
		time.Sleep(w.cfg.Timeouts.ClientWrite + time.Second)
		if n := w.o.InFlight(); n != 0 {
			t.Errorf("%d requests in flight, want 0", n)
		}
	})
}

// vLLM 0.26 can answer 200 without content if it cannot load the blocks of a prefill engine that was
// killed. Nothing shows which engine is at fault, so the last decode replica is tried again.
func TestNoAnswerAfterAPrefillAsksTheLastDecodeReplicaAgain(t *testing.T) {
	for name, nothing := range map[string]string{
		"a stream": streamOf("[DONE]"), "a body": answerOf(200, "application/json", "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{prefill: 2, decode: 1}, func(w *world) {
				var once sync.Once
				w.at("decode", func(at string) {
					once.Do(func() { w.wire.scripted(at, nothing) })
				})
				p := completion(name == "a stream")
				w.exact(p, w.ask(p))
				if n := w.count("tandem_retries_total", ""); n != 1 {
					t.Errorf("%d retries, want 1", n)
				}
			})
		})
	}
}

// An answer with status 200 but without content, for example from a proxy, is retried on another replica.
// If every answer is like that, the request fails with 502.
func TestNoAnswerInA200(t *testing.T) {
	for name, body := range map[string]string{
		"nothing": "", "a page": "<html>gateway</html>", "an empty object": "{}",
		"an error":       `{"error":{"message":"boom","code":500}}`,
		"half an answer": `{"id":"a","choices":[{"index":0,"text":"a`, "choices that are none": `{"choices":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{prefill: 1, decode: 2}, func(w *world) {
				var once sync.Once
				w.at("decode", func(at string) {
					once.Do(func() { w.wire.scripted(at, answerOf(200, "application/json", "", body)) })
				})
				p := completion(false)
				w.exact(p, w.ask(p))
				if n := w.count("tandem_retries_total", ""); n != 1 {
					t.Errorf("%d retries, want 1", n)
				}
			})
		})
	}
	in(t, setup{prefill: 1, decode: 2}, func(w *world) {
		w.at("decode", func(at string) { w.wire.scripted(at, streamOf("[DONE]")) })
		w.failed(chat(true), w.ask(chat(true)), 502)
	})
}
