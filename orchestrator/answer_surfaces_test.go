package orchestrator

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// surfaces are requests with cacheable answers to all APIs other than chat and completions.
var surfaces = map[string]prompt{
	"message":         messages(false),
	"message stream":  messages(true),
	"response":        responses(false),
	"response stream": responses(true),
	"passed response": post("/v1/responses",
		`{"model":"sim","temperature":0,"max_output_tokens":6,"truncation":"auto","input":"a b c"}`),
	"passed response stream": post("/v1/responses",
		`{"model":"sim","temperature":0,"max_output_tokens":6,"truncation":"auto","stream":true,"input":"a b c"}`),
	"embedding":    post("/v1/embeddings", `{"model":"sim","input":["a b c","d"]}`),
	"pooling":      post("/pooling", `{"model":"sim","input":"a b c","task":"embed"}`),
	"classify":     post("/classify", `{"model":"sim","input":["a b c"]}`),
	"score":        post("/score", `{"model":"sim","text_1":"a","text_2":["b","c"]}`),
	"first score":  post("/v1/score", `{"model":"sim","queries":"a","documents":"b"}`),
	"rerank":       post("/rerank", `{"model":"sim","query":"a","documents":["b","c"]}`),
	"first rerank": post("/v1/rerank", `{"query":"a","documents":["b","c"],"top_n":1}`),
	"other rerank": post("/v2/rerank", `{"model":"sim","query":"a","documents":["b"]}`),
}

// onSurfaces is the setup of a world with an answer cache and with engines that have all APIs.
func onSurfaces(change ...func(*config.Config)) setup {
	s := remembering(change...)
	s.engine = func(_ string, o *enginesim.Options) { o.Pooling = true }
	return s
}

// cachedOn sends a request to any path, as [world.ask] does for /v1, and checks the X-Cache header.
func (w *world) cachedOn(p prompt, want string) *heard {
	w.t.Helper()
	if !strings.HasPrefix(p.path, "/v1/") {
		w.mid.mu.Lock()
		w.asked++
		w.mid.mu.Unlock()
	}
	return w.fromCache(p, want)
}

// On every API, the second of two equal requests gets the first one's answer, byte for byte.
func TestSameQuestionIsAnsweredOnceOnEveryAPI(t *testing.T) {
	for name, p := range surfaces {
		t.Run(name, func(t *testing.T) {
			in(t, onSurfaces(), func(w *world) {
				first := w.cachedOn(p, "MISS")
				if first.status != http.StatusOK || first.raw == "" {
					t.Fatalf("status %d: %s", first.status, first.raw)
				}
				if strings.HasPrefix(p.path, "/v1/messages") || strings.HasPrefix(p.path, "/v1/responses") {
					w.exact(p, first)
				}
				n := w.computed()
				time.Sleep(2 * time.Second)
				again := w.cachedOn(p, "HIT")
				if again.raw != first.raw || again.status != http.StatusOK {
					t.Errorf("got %d %q, want 200 and %q as the first time", again.status, again.raw, first.raw)
				}
				if got, want := again.header.Get("Content-Type"), first.header.Get("Content-Type"); got != want {
					t.Errorf("content type %q, want %q as the first time", got, want)
				}
				if age := again.header.Get("Age"); age != "2" {
					t.Errorf("age %q, want 2", age)
				}
				if more := w.computed() - n; more != 0 {
					t.Errorf("engines computed %d more answers, want 0", more)
				}
			})
		})
	}
}

// On no API does a tenant get another tenant's answer, by API key or by cache salt. No answer is served
// after its engine restarted.
func TestAnswersOfEveryAPIStayWhereTheyBelong(t *testing.T) {
	for name, p := range surfaces {
		t.Run(name, func(t *testing.T) {
			in(t, onSurfaces(), func(w *world) {
				asking := func(header, key, salt string) prompt {
					p := p
					p.header = http.Header{header: {key}}
					p.body = strings.Replace(p.body, `{`, `{"cache_salt":"`+salt+`",`, 1)
					return p
				}
				of := asking("Authorization", "Bearer a", "s")
				w.cachedOn(of, "MISS")
				w.cachedOn(of, "HIT")
				w.cachedOn(asking("Authorization", "Bearer b", "s"), "MISS")
				w.cachedOn(asking("X-Api-Key", "Bearer a", "s"), "MISS")
				w.cachedOn(asking("Authorization", "Bearer a", "t"), "MISS")
				w.cachedOn(p, "MISS")
				for _, e := range append(w.p, w.d...) {
					if err := e.Fault(enginesim.Fault{Kind: "restart"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(15 * time.Second)
				w.cachedOn(of, "MISS")
				w.cachedOn(of, "HIT")
			})
		})
	}
}

// While the replicas of a model run different versions of vLLM, all APIs bypass the cache.
func TestMixedModelsAreNotCachedOnAnyAPI(t *testing.T) {
	s := onSurfaces(func(c *config.Config) { c.Local = config.LocalAuto })
	s.engine = func(name string, o *enginesim.Options) {
		o.Pooling = true
		if name == "d1" {
			o.Version = "0.31.0"
		}
	}
	in(t, s, func(w *world) {
		for _, p := range surfaces {
			w.cachedOn(p, "BYPASS")
		}
		if n := w.count("tandem_answer_cache_bypassed_total", "mixed_models"); n != len(surfaces) {
			t.Errorf("counted %d times, want %d", n, len(surfaces))
		}
	})
}

// On every API, equal requests at the same time cause one computation.
func TestEqualRequestsAtOnceAreOneComputationOnEveryAPI(t *testing.T) {
	for name, p := range surfaces {
		t.Run(name, func(t *testing.T) {
			in(t, onSurfaces(), func(w *world) {
				const clients = 40
				var all sync.WaitGroup
				got := make([]*heard, clients)
				w.mid.mu.Lock()
				if !strings.HasPrefix(p.path, "/v1/") {
					w.asked += clients
				}
				w.mid.mu.Unlock()
				for i := range clients {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Microsecond)
						got[i] = w.ask(p)
					})
				}
				all.Wait()
				for i, h := range got {
					if h.raw != got[0].raw || h.status != http.StatusOK {
						t.Fatalf("client %d got status %d, %q, the first %q", i, h.status, h.raw, got[0].raw)
					}
				}
				if n := w.computed(); n != 1 {
					t.Errorf("%d computations, want 1", n)
				}
			})
		})
	}
}

// Requests that make the engine store or do something bypass the cache, and so do requests with unknown
// fields.
func TestWhatIsNotForTheAnswerCacheOnOtherAPIs(t *testing.T) {
	in(t, onSurfaces(), func(w *world) {
		respond := func(more string) prompt {
			return post("/v1/responses", `{"model":"sim","temperature":0,"max_output_tokens":3,"input":"a"`+more+`}`)
		}
		noStore := post("/v1/embeddings", `{"model":"sim","input":"a"}`)
		noStore.header = http.Header{"Cache-Control": {"no-store"}}
		for _, tt := range []struct {
			why string
			p   prompt
		}{
			{"store", respond(`,"store":true`)},
			{"store", respond(`,"previous_response_id":"resp_1"`)},
			{"store", respond(`,"background":true`)},
			{"tools", respond(`,"tools":[{"type":"web_search"}]`)},
			{"not_deterministic", respond(`,"temperature":1`)},
			{"not_deterministic", post("/v1/messages",
				`{"model":"sim","max_tokens":3,"messages":[{"role":"user","content":"a"}]}`)},
			{"unknown_field", post("/v1/messages",
				`{"model":"sim","max_tokens":3,"temperature":0,"x":1,"messages":[{"role":"user","content":"a"}]}`)},
			{"unknown_field", post("/v1/embeddings", `{"model":"sim","input":"a","encoding_format":"bytes"}`)},
			{"unknown_field", post("/pooling", `{"model":"sim","data":{"a":"b"}}`)},
			{"media", post("/v1/embeddings", `{"model":"sim","messages":[{"role":"user","content":[`+
				`{"type":"image_url","image_url":{"url":"https://example.org/a"}}]}]}`)},
			{"query", post("/v1/score?a=b", `{"model":"sim","text_1":"a","text_2":"b"}`)},
			{"no_store", noStore},
		} {
			before := w.count("tandem_answer_cache_bypassed_total", tt.why)
			for range 2 {
				w.cachedOn(tt.p, "BYPASS")
			}
			if n := w.count("tandem_answer_cache_bypassed_total", tt.why) - before; n != 2 {
				t.Errorf("%s: %s was counted %d times, want 2", tt.p.body, tt.why, n)
			}
		}
	})
}

// A form bypasses the cache, whatever its body looks like.
func TestFormIsNoQuestion(t *testing.T) {
	in(t, onSurfaces(), func(w *world) {
		p := surfaces["embedding"]
		w.fromCache(p, "MISS")
		p.header = http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}
		w.fromCache(p, "BYPASS")
	})
}

// The cache keeps no errors, and no answers that broke off or did not end by themselves.
func TestFailuresAreNotKeptOnOtherAPIs(t *testing.T) {
	const (
		whole  = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"
		stream = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
	)
	event := func(data string) string { return "event: x\ndata: " + data + "\n\n" }
	s := onSurfaces(func(c *config.Config) { c.Retry.Attempts = 1 })
	s.decode = 1
	for name, tt := range map[string]struct{ surface, answer string }{
		"message aborted": {"message", whole + `{"type":"message","content":[{"type":"text","text":"x"}],` +
			`"stop_reason":null}`},
		"message cut": {"message stream", stream + event(`{"type":"message_start"}`) +
			event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`)},
		"message failed": {"message stream", stream + event(`{"type":"message_start"}`) +
			event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`) +
			event(`{"type":"error","error":{"type":"internal_error","message":"m"}}`)},
		"response failed": {"passed response stream", stream +
			event(`{"type":"response.output_text.delta","delta":"x"}`) +
			event(`{"type":"response.failed","response":{"status":"failed"}}`)},
		"response cancelled": {"passed response", whole + `{"object":"response","status":"cancelled","output":[]}`},
		"response refused":   {"passed response", "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}"},
		"vectors cut":        {"embedding", whole + `{"object":"list","data":[{"embedding":[0.5,`},
		"vectors refused":    {"embedding", "HTTP/1.1 400 Oops\r\nContent-Length: 2\r\n\r\n{}"},
		"vectors failed":     {"embedding", whole + `{"error":{"code":500}}`},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, s, func(w *world) {
				p := surfaces[tt.surface]
				w.wire.scripted(w.d[0].addr, tt.answer)
				first := w.cachedOn(p, "MISS")
				time.Sleep(10 * time.Second)
				second := w.cachedOn(p, "MISS")
				if second.status != http.StatusOK || second.raw == first.raw {
					t.Errorf("status %d, %q, want 200 and another text than the failure %q",
						second.status, second.raw, first.raw)
				}
				if third := w.cachedOn(p, "HIT"); third.raw != second.raw {
					t.Errorf("the cache kept %q, want %q", third.raw, second.raw)
				}
			})
		})
	}
}
