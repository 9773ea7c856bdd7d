package orchestrator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
)

// longPauses sets timeouts that are longer than an engine stays frozen.
func longPauses(c *config.Config) {
	longAnswers(c)
	c.Timeouts.Prefill = time.Minute
}

// outlastKept freezes an engine for longer than it keeps idle connections.
func outlastKept(w *world, e *simulated) {
	fault(enginesim.Fault{Kind: "freeze", For: 6 * time.Second})(w, e)
}

// vectors makes engines serve embeddings too.
func vectors(_ string, o *enginesim.Options) { o.Pooling = true }

// keptOpen leaves idle connections to all engines.
func (w *world) keptOpen() {
	w.t.Helper()
	var all []*pending
	for range 4 * len(w.d) {
		all = append(all, w.begin(completion(false)))
	}
	for _, one := range all {
		if got := <-one.heard; got.status != 200 {
			w.t.Fatalf("status %d, %s", got.status, got.raw)
		}
	}
	w.wire.forget()
}

// keep leaves an idle connection to one engine, for its next request.
func (w *world) keep(to replica.ID) {
	w.t.Helper()
	resp, err := w.o.fleet.Endpoint(to).Do(w.t.Context(), &engine.Request{
		Method: http.MethodPost, Path: "/v1/completions", ID: "kept", Body: []byte(completion(false).body),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := resp.ReadAll(1 << 20); err != nil {
		w.t.Fatal(err)
	}
}

// A frozen engine closes connections that have become too old, even if a request has arrived on one. That
// request is retried, at the same engine if there is no other, and the engine is not blamed.
func TestAKeptConnectionThatEndsIsNoFailure(t *testing.T) {
	for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
		for _, leg := range []string{"prefill", "decode"} {
			// with this order the answer does not wait for the prefill leg
			if order == connector.Concurrent && leg == "prefill" {
				continue
			}
			in(t, setup{prefill: 1, decode: 1, order: order, config: longPauses}, func(w *world) {
				w.keptOpen()
				w.at(leg, func(replica string) {
					w.at(leg, nil)
					outlastKept(w, w.by(replica))
				})
				p := completion(true)
				w.exact(p, w.ask(p))
				if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
					t.Errorf("%s: %d failed attempts count against engines, want 0", leg, n)
				}
				if failed := w.o.ring.Newest(1)[0].Failed; len(failed) != 1 || failed[0].Kind != "stale" {
					t.Errorf("%s: the record has the failures %+v, want one of kind stale", leg, failed)
				}
			})
		}
	}
}

// One engine dies under a request, and before or after that a kept connection ends. That end does not
// count as a second dead engine.
func TestAKeptConnectionThatEndsIsNoSecondOpinion(t *testing.T) {
	for _, stale := range []int{1, 2} {
		in(t, setup{decode: 2, config: longPauses}, func(w *world) {
			w.keptOpen()
			tries := 0
			w.at("decode", func(replica string) {
				e := w.by(replica)
				switch tries++; tries {
				case stale:
					outlastKept(w, e)
				case 3 - stale:
					go func() {
						time.Sleep(time.Millisecond) // the request was sent by then
						fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, e)
					}()
				}
			})
			p := completion(true)
			w.exact(p, w.ask(p))
			if tries != 3 {
				t.Errorf("the request had %d attempts, want 3", tries)
			}
			time.Sleep(20 * time.Second) // the dead engine is back
		})
	}
}

// An engine that dies under a request has failed, even if the connection is old.
func TestAnEngineThatEndsUnderAKeptConnection(t *testing.T) {
	in(t, setup{decode: 1, config: longPauses}, func(w *world) {
		w.keptOpen()
		w.at("decode", func(replica string) {
			e := w.by(replica)
			go func() {
				time.Sleep(6 * time.Second)
				fault(enginesim.Fault{Kind: "restart", For: time.Minute})(w, e)
			}()
		})
		p := longPrompt(1500)
		w.failed(p, w.ask(p), 503) // no other replica is left
		if failed := w.o.ring.Newest(1)[0].Failed; failed[0].Kind != "broken" {
			t.Errorf("the record has the failures %+v, want the kind broken", failed)
		}
		time.Sleep(2 * time.Minute) // the engine is back
	})
}

// An unsplit request carries no KV transfer params. If a kept connection ends, it is sent once more with a
// new id, to the same engine if there is no other. The engine is not blamed.
func TestAKeptConnectionThatEndsUnderAWholeRequest(t *testing.T) {
	recording := "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsim\r\n--x--\r\n"
	for _, p := range []prompt{
		post("/v1/embeddings", `{"model":"sim","input":"a b c"}`),
		{
			path: "/v1/embeddings", body: recording, // the simulated engine reads and then refuses it
			header: http.Header{"Content-Type": {"multipart/form-data; boundary=x"}},
		},
		passes[0], passes[1], passes[2],
	} {
		in(t, setup{prefill: 1, decode: 1, config: longPauses, engine: vectors}, func(w *world) {
			w.keptOpen()
			outlastKept(w, w.d[0])
			got, want := w.ask(p), w.right(p)
			if !strings.HasPrefix(p.path, "/v1/") {
				w.asked++
			}
			if got.status != want.status || masked(got.raw) != masked(want.raw) {
				t.Errorf("%s: status %d, %s, want %d %s", p.path, got.status, got.raw, want.status, want.raw)
			}
			w.sentTwice(p.path)
			if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
				t.Errorf("%s: %d failed attempts count against the engine, want 0", p.path, n)
			}
		})
	}
}

// sentTwice checks that engines got two equal requests to this path with different ids.
func (w *world) sentTwice(path string) {
	w.t.Helper()
	all := w.posts(false)
	if len(all) != 2 || all[0].path != path || all[1].path != path {
		w.t.Fatalf("%d requests to engines, want two to %s: %+v", len(all), path, all)
	}
	ids := []string{all[0].header.Get("X-Request-Id"), all[1].header.Get("X-Request-Id")}
	if all[0].body != all[1].body || ids[0] == ids[1] {
		w.t.Errorf("sent %q as %s, then %q as %s", all[0].body, ids[0], all[1].body, ids[1])
	}
}

// An unsplit request is sent at most once more. If its connection ends again, a proxy may be the cause,
// and an engine may have read the request.
func TestAWholeRequestIsSentOnceMoreAtMost(t *testing.T) {
	in(t, setup{prefill: 1, decode: 3, config: longPauses, engine: vectors}, func(w *world) {
		w.keptOpen()
		w.at("decode", func(at string) {
			w.keep(replica.ID(at))
			outlastKept(w, w.by(at))
		})
		p := post("/v1/embeddings", `{"model":"sim","input":"a b c"}`)
		got := w.ask(p)
		n := 0
		for _, sent := range w.posts(false) {
			if sent.path == p.path {
				n++
			}
		}
		if got.status != 502 || n != 2 {
			t.Errorf("status %d after %d requests to engines", got.status, n)
		}
	})
}

// An engine may run tools for a request, or continue it in the background. Such a request is sent only
// once.
func TestAKeptConnectionThatEndsUnderWhatMayAct(t *testing.T) {
	for _, more := range []string{
		`"tools":[{"type":"mcp","server_label":"x","server_url":"http://x"}]`, `"background":true`,
		`"truncation":"auto","tools":[{"type":"code_interpreter"}]`, `"conversation":"c"`, `"tools":{"a":1}`,
	} {
		in(t, setup{prefill: 1, decode: 1, config: longPauses, engine: vectors}, func(w *world) {
			w.keptOpen()
			outlastKept(w, w.d[0])
			got := w.ask(post("/v1/responses", `{"model":"sim","input":"a b c","max_output_tokens":3,`+more+`}`))
			if n := len(w.posts(false)); got.status != 502 || n != 1 {
				t.Errorf("%s: status %d after %d requests to engines: %s", more, got.status, n, got.raw)
			}
			if n := w.count("tandem_attempt_failures_total", ""); n != 0 {
				t.Errorf("%d failed attempts count against the engine, want 0", n)
			}
		})
	}
}

// A request that continues a stored response is sent once more to the same engine, which has that
// response.
func TestAKeptConnectionThatEndsUnderTheRestOfATalk(t *testing.T) {
	in(t, setup{prefill: 1, decode: 2, config: longPauses}, func(w *world) {
		w.keptOpen()
		for _, d := range w.d {
			w.wire.scripted(d.addr, answerOf(200, "application/json", "", "{}")) // the engine stores that response
		}
		w.at("decode", func(replica string) {
			w.at("decode", nil)
			outlastKept(w, w.by(replica))
		})
		got := w.ask(post("/v1/responses", `{"model":"sim","input":"a b c","previous_response_id":"resp_1"}`))
		if got.status != 404 { // the simulated engine stores no responses
			t.Errorf("status %d, %s", got.status, got.raw)
		}
		w.sentTwice("/v1/responses")
		if all := w.posts(false); all[0].engine != all[1].engine {
			t.Errorf("sent to %s, then to %s", all[0].engine, all[1].engine)
		}
	})
}
