package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// atOnce makes the first failure eject a replica or pair.
func atOnce(c *config.Config) { c.Health.Ejection.Failures = 1 }

// blamed checks the numbers of ejected replicas and pairs.
func (w *world) blamed(replicas, pairs int) {
	w.t.Helper()
	if n := w.count("tandem_ejections_total", ""); n != replicas {
		w.t.Errorf("%d replicas are ejected, want %d", n, replicas)
	}
	if n := w.count("tandem_pair_ejections_total", ""); n != pairs {
		w.t.Errorf("%d pairs are ejected, want %d", n, pairs)
	}
}

// An answer that is longer, in bytes or in time, than the router's limits ejects no engine: the client
// asked for that answer.
func TestAnswersBeyondOurLimitsAreNobodysFault(t *testing.T) {
	passed := post("/v1/responses", `{"model":"sim","input":"a b c","max_output_tokens":300,"temperature":0,`+
		`"truncation":"auto","ignore_eos":true}`)
	small := func(c *config.Config) { c.Limits.AnswerBytes = 1024 }
	short := func(c *config.Config) { c.Timeouts.Answer = 60 * time.Millisecond }
	huge := func(w *world) {
		for _, d := range w.d {
			w.wire.scripted(d.addr, streamOf(roleEvent,
				strings.Replace(roleEvent, `"content":""`, `"content":"`+strings.Repeat("a", 17<<20)+`"`, 1)))
		}
	}
	for _, tt := range []struct {
		name   string
		p      prompt
		config func(*config.Config)
		engine func(w *world)
		code   int
		kind   string
	}{
		{"a large answer", post(
			"/v1/completions", `{"model":"sim","max_tokens":400,"temperature":0,"ignore_eos":true,"prompt":"a b"}`,
		), small, nil, 502, "answer_too_large"},
		{"a large answer that is passed", passed, small, nil, 502, "answer_too_large"},
		{"a large event", chat(true), nil, huge, 502, "answer_too_large"},
		{"a long answer", completion(false), short, nil, 504, "answer_timeout"},
		{"a long answer that is passed", passed, short, nil, 504, "answer_timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) {
				atOnce(c)
				if tt.config != nil {
					tt.config(c)
				}
			}}, func(w *world) {
				if tt.engine != nil {
					tt.engine(w)
				}
				if got := w.ask(tt.p); got.status != tt.code {
					t.Errorf("status %d, want %d: %.300s", got.status, tt.code, got.raw)
				}
				if n := w.count("tandem_requests_total", tt.kind); n != 1 {
					t.Errorf("%d requests ended with %s, want 1", n, tt.kind)
				}
				w.blamed(0, 0)
				w.asked = w.count("tandem_requests_total", "")
			})
		})
	}
}

// A stream is continued by a second engine with other tokens. The second engine may be right, so only the
// first one is blamed, for breaking off.
func TestAnAnswerThatDivergesIsHeldAgainstWhoBrokeOff(t *testing.T) {
	const other = `{"id":"cmpl-x","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,` +
		`"text":"x","finish_reason":null,"token_ids":[9]}]}`
	in(t, setup{config: atOnce}, func(w *world) {
		p := greedy("/v1/completions", 12, `"stop":["0123456789"],`)
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 8})
		w.at("continue", func(string) {
			w.at("decode", func(at string) { w.wire.scripted(w.by(at).addr, streamOf(other)) })
		})
		w.failed(p, w.ask(p), 502)
		if n := w.count("tandem_continued_total", "diverged"); n != 1 {
			t.Errorf("%d streams diverged, want 1", n)
		}
		w.blamed(1, 0)
	})
}

// An error after the first content is the decode engine's error: the KV blocks of the prefill engine had
// arrived.
func TestAnErrorBehindContentIsNotThePairs(t *testing.T) {
	content := strings.Replace(roleEvent, `"content":""`, `"content":"a"`, 1)
	for name, more := range map[string]func(*config.Config){"goes on": nil, "ends": nothingGoesOn} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{order: connector.Sequential, config: func(c *config.Config) {
				atOnce(c)
				if more != nil {
					more(c)
				}
			}}, func(w *world) {
				w.at("decode", func(at string) {
					w.at("decode", nil)
					w.wire.scripted(w.by(at).addr, streamOf(roleEvent, content, errorEvent, "[DONE]"))
				})
				if got := w.ask(chat(true)); got.status != 200 || !strings.Contains(got.raw, `"a"`) {
					t.Errorf("status %d: %s", got.status, got.raw)
				}
				w.blamed(1, 0)
			})
		})
	}
}

// A stream that is not split and breaks off counts as a failure of its engine.
func TestAPassedStreamThatBreaksOffIsHeldAgainstItsEngine(t *testing.T) {
	in(t, setup{config: atOnce}, func(w *world) {
		events := streamOf(`{"type":"response.created","response":{"id":"resp_1"}}`,
			generatedEvent[openai.Responses])
		half := strings.TrimSuffix(events, "0\r\n\r\n")
		for _, d := range w.d {
			w.wire.scripted(d.addr, half)
		}
		got := w.ask(post("/v1/responses",
			`{"model":"sim","stream":true,"input":"a b c","max_output_tokens":3,"truncation":"auto"}`))
		if got.status != 200 || !strings.Contains(got.raw, "broken") {
			t.Errorf("status %d: %s", got.status, got.raw)
		}
		if n := w.count("tandem_requests_total", "broken"); n != 1 {
			t.Errorf("%d requests count as broken, want 1", n)
		}
		w.blamed(1, 0)
		w.asked = w.count("tandem_requests_total", "")
	})
}

// Both decode replicas answered with an error, so no replica is left. The third attempt that finds none is
// not counted as a retry.
func TestAThirdAttemptThatFindsNobodyIsNone(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "fail", Count: -1})(w, d)
		}
		p := chat(true)
		w.failed(p, w.ask(p), 500)
		if n := w.count("tandem_retries_total", ""); n != 1 {
			t.Errorf("counted %d retries, want 1", n)
		}
	})
}

// A continuation sends another body each time, but it is still the client's one request: its failures
// count as failures of that request.
func TestTheRestOfAnAnswerIsTheSameRequest(t *testing.T) {
	root := &job{req: &openai.Request{Raw: []byte(`{"prompt":"a"}`)}}
	rest := &job{req: &openai.Request{Raw: []byte(`{"prompt":[1,2,3]}`)}, rest: restOfAnswer{root: root}}
	if root.fingerprint() != rest.fingerprint() {
		t.Error("a continuation has another fingerprint than its request")
	}
	other := &job{req: &openai.Request{Raw: []byte(`{"prompt":"b"}`)}}
	if root.fingerprint() == other.fingerprint() {
		t.Error("two different requests have the same fingerprint")
	}
}
