package orchestrator

import (
	"testing"
	"time"

	"tandem/internal/config"
	"tandem/internal/enginesim"
)

// passes are requests that go whole to one replica, of every path that the simulated engines serve.
var passes = []prompt{
	post("/inference/v1/generate", `{"model":"sim","token_ids":[400,401,402],"sampling_params":{"max_tokens":3,"temperature":0}}`),
	post("/v1/responses", `{"model":"sim","input":"a b c","max_output_tokens":3,"temperature":0,"truncation":"auto"}`),
	post("/v1/responses", `{"model":"sim","stream":true,"input":"a b c","max_output_tokens":3,"temperature":0,"truncation":"auto"}`),
	{method: "GET", path: "/v1/models"},
	post("/tokenize", `{"model":"sim","prompt":"a b c"}`),
}

// What is passed whole is tried elsewhere where nobody was there to receive it.
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
			time.Sleep(10 * time.Second) // until they are usable again
		}
		w.asked = w.count("tandem_requests_total", "ok") // not all of these paths are counted by ask
	})
}

// A request of which an engine may have seen something is not passed again: nobody knows what it did.
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

// A whole answer may take as long as timeouts.answer, whatever it is an answer to.
func TestPassedAnswersHaveTheTimeOfAnswers(t *testing.T) {
	s := setup{config: func(c *config.Config) { c.Timeouts.DecodeFirst, c.Timeouts.Answer = time.Second, time.Minute }}
	for _, p := range []prompt{
		post("/inference/v1/generate", `{"model":"sim","token_ids":[400,401,402],"sampling_params":{"max_tokens":300,"temperature":0,"ignore_eos":true}}`),
		post("/v1/responses", `{"model":"sim","input":"a b c","max_output_tokens":300,"temperature":0,"truncation":"auto","ignore_eos":true}`),
	} {
		in(t, s, func(w *world) {
			got, want := w.ask(p), w.right(p)
			if got.status != 200 || got.took < 2*time.Second || masked(got.raw) != masked(want.raw) {
				t.Errorf("%s: %d after %v: %s", p.path, got.status, got.took, got.raw)
			}
			w.asked = w.count("tandem_requests_total", "ok")
		})
	}
	streams := post("/v1/responses", `{"model":"sim","stream":true,"input":"a b c","max_output_tokens":3,"truncation":"auto"}`)
	in(t, s, func(w *world) {
		for _, d := range w.d {
			fault(enginesim.Fault{Kind: "stall", Count: -1})(w, d)
		}
		if got := w.ask(streams); got.status != 504 || got.took != time.Second {
			t.Errorf("a stream that does not begin: %d after %v", got.status, got.took)
		}
	})
}
