package orchestrator

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// slowToTell delays /metrics of the engines, as busy engines do. A replica that counts as unusable stays
// so for that time.
func slowToTell(w *world) {
	for _, e := range append(append([]*simulated{}, w.p...), w.d...) {
		fault(enginesim.Fault{Kind: "slow_metrics", For: 500 * time.Millisecond})(w, e)
	}
}

// usable checks that every replica is usable and that another request is answered.
func (w *world) usable(after string) {
	w.t.Helper()
	now := time.Now()
	for _, m := range w.o.prefill.Status(now) {
		if !m.Healthy {
			w.t.Errorf("%s: prefill replica %s is not usable", after, m.ID)
		}
	}
	for _, m := range w.o.decode.Status(now) {
		if !m.Healthy {
			w.t.Errorf("%s: decode replica %s is not usable", after, m.ID)
		}
	}
	w.exact(completion(false), w.ask(completion(false)))
}

// everywhere has enough requests of each kind to reach every replica.
var everywhere = []prompt{
	{method: "GET", path: "/v1/models"},
	{method: "GET", path: "/v1/models"},
	post("/v1/embeddings", `{"model":"sim","input":"a"}`),
	post("/v1/responses", `{"model":"sim","input":"a","truncation":"auto","max_output_tokens":5}`),
	completion(false), chat(true),
}

// A client that leaves at any time does not make its replica unusable.
func TestLeavingClientsBlameNoReplica(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1}, func(w *world) {
		slowToTell(w)
		for _, p := range everywhere {
			for _, after := range []time.Duration{0, time.Microsecond, time.Millisecond} {
				method := "POST"
				if p.method != "" {
					method = p.method
				}
				ctx, leave := context.WithTimeout(w.t.Context(), after)
				w.asked++
				r := httptest.NewRequestWithContext(ctx, method, p.path, strings.NewReader(p.body))
				func() {
					defer func() { _ = recover() }() // a handler whose client has left ends with a panic
					w.o.Front().ServeHTTP(httptest.NewRecorder(), r)
				}()
				leave()
			}
			w.usable(p.path)
		}
	})
}

// A client's query string reaches the engine or is refused. The replica stays usable.
func TestQueriesBlameNoReplica(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1}, func(w *world) {
		slowToTell(w)
		for _, query := range []string{"?x=\xe9", "?\xff", "?a=%zz&b"} {
			for _, p := range everywhere {
				p.path += query
				got := w.ask(p)
				if want := w.right(p); p.method == "GET" && got.status != want.status {
					t.Errorf("%s: %d %s, want the engine's status %d", p.path, got.status, got.raw, want.status)
				}
				if got.status >= 500 {
					t.Errorf("%s: %d %s", p.path, got.status, got.raw)
				}
			}
			w.usable(query[:2])
		}
	})
}
