package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// passes are requests that go unchanged to one replica, for every path that the simulated engines serve.
var passes = []prompt{
	post("/inference/v1/generate",
		`{"model":"sim","token_ids":[400,401,402],"sampling_params":{"max_tokens":3,"temperature":0}}`),
	post("/v1/responses",
		`{"model":"sim","input":"a b c","max_output_tokens":3,"temperature":0,"truncation":"auto"}`),
	post("/v1/responses",
		`{"model":"sim","stream":true,"input":"a b c","max_output_tokens":3,"temperature":0,"truncation":"auto"}`),
	{method: "GET", path: "/v1/models"},
	post("/tokenize", `{"model":"sim","prompt":"a b c"}`),
}

// An unsplit request is retried on another replica if the first one did not accept the connection.
func TestPassedRequestsAreTriedElsewhere(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for i, p := range passes {
			for _, gone := range []*simulated{w.p[0], w.d[0]} {
				w.net.Refuse(gone.addr, true)
				w.net.Cut(gone.addr)
			}
			for range 4 {
				got, want := w.ask(p), w.right(p)
				if got.status != 200 || masked(got.raw) != masked(want.raw) {
					t.Errorf("%s (%d): %d %s", p.path, i, got.status, got.raw)
				}
			}
			w.net.Refuse(w.p[0].addr, false)
			w.net.Refuse(w.d[0].addr, false)
			time.Sleep(10 * time.Second) // until the replicas are usable again
		}
		w.asked = w.count("tandem_requests_total", "ok") // ask does not count all of these paths
	})
}

// A request to /v1/decisions (vLLM 0.33) goes to one decode replica without the client's KV transfer
// params, and its answer comes back unchanged.
func TestDecisionsAreNotSplit(t *testing.T) {
	const answer = `{"model":"sim","answers":[{"type":"predicate","name":null,"probability":0.75}],"usage":{}}`
	const body = `{"model":"sim","input":[{"role":"user","content":"a b"}], "joint":false,` +
		`"questions":[{"type":"predicate","instructions":"kv_transfer_params?"}]%s}`
	in(t, setup{}, func(w *world) {
		for _, d := range w.d {
			w.wire.scripted(d.addr, answerOf(200, "application/json", "", answer))
		}
		got := w.ask(post("/v1/decisions", fmt.Sprintf(body, `,"kv_transfer_params":`+hostile)))
		sent := w.posts(true)
		if len(sent) != 1 || sent[0].engine[0] != 'd' || sent[0].body != fmt.Sprintf(body, "") {
			t.Errorf("engines got %+v", sent)
		}
		if got.status != 200 || got.raw != answer {
			t.Errorf("%d %s", got.status, got.raw)
		}
	})
}

// An unsplit request that an engine may have received is not sent again: nobody knows what the engine did
// with it.
func TestPassedRequestsAreSentOnce(t *testing.T) {
	for _, raw := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n"} {
		in(t, setup{}, func(w *world) {
			for _, d := range w.d {
				w.wire.scripted(d.addr, raw)
			}
			got := w.ask(passes[1])
			if n := len(w.posts(false)); got.status < 500 || n != 1 {
				t.Errorf("%q: %d after %d requests to engines", raw, got.status, n)
			}
		})
	}
}

// Any unsplit answer may take as long as timeouts.answer.
func TestPassedAnswersHaveTheTimeOfAnswers(t *testing.T) {
	s := setup{
		config: func(c *config.Config) { c.Timeouts.DecodeFirst, c.Timeouts.Answer = time.Second, time.Minute },
	}
	for _, p := range []prompt{
		post("/inference/v1/generate", `{"model":"sim","token_ids":[400,401,402],`+
			`"sampling_params":{"max_tokens":300,"temperature":0,"ignore_eos":true}}`),
		post("/v1/responses", `{"model":"sim","input":"a b c","max_output_tokens":300,"temperature":0,`+
			`"truncation":"auto","ignore_eos":true}`),
	} {
		in(t, s, func(w *world) {
			got, want := w.ask(p), w.right(p)
			if got.status != 200 || got.took < 2*time.Second || masked(got.raw) != masked(want.raw) {
				t.Errorf("%s: %d after %v: %s", p.path, got.status, got.took, got.raw)
			}
			w.asked = w.count("tandem_requests_total", "ok")
		})
	}
	streams := post("/v1/responses",
		`{"model":"sim","stream":true,"input":"a b c","max_output_tokens":3,"truncation":"auto"}`)
	in(t, s, func(w *world) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "stall", Count: -1})(w, d)
		}
		if got := w.ask(streams); got.status != 504 || got.took != time.Second {
			t.Errorf("a stream that does not begin: %d after %v", got.status, got.took)
		}
	})
}

// A request for more samples than limits.samples is refused with a message that names the setting.
func TestTooManySamplesAreRefused(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Limits.Samples = 4 }}, func(w *world) {
		for _, p := range []prompt{
			post("/v1/completions", `{"model":"sim","max_tokens":2,"n":5,"temperature":1,"prompt":"a b"}`),
			post("/v1/completions", `{"model":"sim","max_tokens":2,"best_of":60000,"temperature":1,"prompt":"a b"}`),
			post("/v1/chat/completions",
				`{"model":"sim","max_tokens":2,"n":5,"messages":[{"role":"user","content":"a"}]}`),
			post("/v1/chat/completions/batch",
				`{"model":"sim","max_tokens":2,"n":5,"messages":[[{"role":"user","content":"a"}]]}`),
			post("/inference/v1/generate", `{"model":"sim","token_ids":[1,2],"sampling_params":{"n":5}}`),
		} {
			got := w.ask(p)
			if got.status != 400 || !strings.Contains(got.fail.Message, "limits.samples") {
				t.Errorf("%s: %d %s", p.path, got.status, got.raw)
			}
		}
		if legs := w.posts(true); len(legs) != 0 {
			t.Errorf("engines got %+v", legs)
		}
		w.asked = w.count("tandem_requests_total", "bad_request")
		if w.asked != 5 {
			t.Errorf("counted %d bad requests, want 5", w.asked)
		}
	})
}

// A request that needs an empty replica does not block a request that needs little room.
func TestLargeRequestKeepsNobodyOut(t *testing.T) {
	s := setup{
		decode: 1, engine: func(_ string, o *enginesim.Options) { o.Core.Blocks = 2000 },
		config: func(c *config.Config) { c.Limits.Samples, c.Scoring.ExpectedOutput = 1<<16, fullForLong },
	}
	in(t, s, func(w *world) {
		long := post("/v1/completions",
			`{"model":"sim","max_tokens":700,"temperature":0,"ignore_eos":true,"prompt":"a b c d"}`)
		a, b := w.begin(long), w.begin(long)
		time.Sleep(500 * time.Millisecond)
		greedy := make([]*pending, 3)
		for i := range greedy {
			greedy[i] = w.begin(post("/v1/completions",
				`{"model":"sim","max_tokens":100,"n":60000,"temperature":1,"prompt":"a b c d"}`))
		}
		time.Sleep(100 * time.Millisecond)
		if n := w.o.queue.length(); n != len(greedy) {
			t.Fatalf("%d requests wait, want the three large ones", n)
		}
		small := completion(false)
		if got := w.ask(small); got.status != 200 || got.took > time.Second {
			t.Errorf("a small request took %v: %d", got.took, got.status)
		}
		w.exact(long, a.end())
		w.exact(long, b.end())
		for _, g := range greedy {
			g.end()
		}
	})
}

// A draining router retries a running request, and refuses new ones.
func TestDrainingRetriesWhatRuns(t *testing.T) {
	in(t, setup{}, func(w *world) {
		w.at("prefill", func(at string) {
			w.at("prefill", nil)
			fail(503)(w, w.by(at))
			w.o.Drain()
		})
		w.exact(completion(false), w.ask(completion(false)))
		if got := w.ask(completion(false)); got.status != 503 {
			t.Errorf("a new request: %d %s", got.status, got.raw)
		}
	})
}
