package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// A frozen engine gets requests for token ids until one is unanswered. The request that waits for that
// answer gets it from another engine; no other request waits.
func TestNobodyAsksAnEngineForTokensThatOwesAnAnswer(t *testing.T) {
	in(t, setup{config: func(c *config.Config) {
		longAnswers(c)
		c.Local = config.LocalAlways // no prefill replica gets a prompt
	}}, func(w *world) {
		fault(enginesim.Fault{Kind: "freeze", For: time.Minute})(w, w.p[0])
		late := 0
		for i := range 24 {
			p := nthChat(i, true)
			got := w.ask(p)
			w.exact(p, got)
			if got.took > w.cfg.Timeouts.Tokenize {
				late++
			}
			if got.took > w.cfg.Timeouts.Tokenize+time.Second {
				t.Errorf("request %d took %v", i, got.took)
			}
		}
		if late != 1 {
			t.Errorf("%d of 24 requests waited for the frozen engine, want only the first one", late)
		}
		if n := w.count("tandem_token_ids_total", "estimate"); n != 0 {
			t.Errorf("%d prompt lengths were estimated, though an engine could tokenize", n)
		}
		time.Sleep(time.Minute) // fake time: the engine continues
		before := w.tokenQuestions(w.p[0])
		for i := range 24 {
			w.ask(nthChat(100+i, true))
		}
		if w.tokenQuestions(w.p[0]) == before {
			t.Error("the engine gets no requests for token ids after it continued")
		}
	})
}

// tokenQuestions returns the number of requests for token ids that the engine got.
func (w *world) tokenQuestions(e *simulated) (n int) {
	for _, q := range w.posts(true) {
		asks := q.path == "/tokenize" || strings.HasSuffix(q.path, "/render")
		if asks && q.engine == strings.TrimSuffix(e.addr, ".internal:8000") {
			n++
		}
	}
	return n
}
