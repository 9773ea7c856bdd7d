package orchestrator

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
)

// A panic of a request, at any point, is answered with 500 and leaves nothing behind: no lease, no leg and
// no request in flight.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	batch := post("/v1/completions", `{"model":"sim","max_tokens":3,"prompt":["a b","c d","e f"]}`)
	for _, seam := range []string{"tokenize", "plan", "prefill", "handoff", "decode"} {
		for _, p := range []prompt{completion(false), chat(true), batch} {
			for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
				in(t, setup{order: order}, func(w *world) {
					w.at(seam, func(string) {
						w.at(seam, nil)
						panic("a bug")
					})
					got := w.ask(p)
					if got.status != 500 || got.fail.Code != 500 {
						t.Errorf("%s at %s: %d %v %s", p.path, seam, got.status, got.err, got.raw)
					}
					w.silent(got)
					if n := w.count("tandem_requests_total", "panic"); n != 1 {
						t.Errorf("counted %d panics, want 1", n)
					}
				})
			}
		}
	}
}

// The same for a panic while the answer is sent. If the client has received something, the connection is
// cut, so that the answer does not look complete.
func TestPanicBehindTheAnswer(t *testing.T) {
	for _, begun := range []bool{false, true} {
		in(t, setup{}, func(w *world) {
			w.asked++
			p := completion(true)
			rec := httptest.NewRecorder()
			cut := false
			serve := func(ctx context.Context, q *request) *failure {
				req, f := q.parse(openai.Completions)
				if f != nil {
					return f
				}
				return serveJob(ctx, q.newJob(req, 0), func(*delivery) *failure {
					if begun {
						_ = q.w.send([]byte("data: {}\n\n"))
					}
					panic("a bug")
				})
			}
			func() {
				defer func() { cut = recover() != nil }()
				w.o.front().handle(p.path, serve)(rec,
					httptest.NewRequestWithContext(w.t.Context(), "POST", p.path, strings.NewReader(p.body)))
			}()
			if cut != begun || !begun && rec.Code != 500 {
				t.Errorf("answer begun: %v; connection cut: %v, status %d", begun, cut, rec.Code)
			}
		})
	}
}
