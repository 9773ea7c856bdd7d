package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// A stalled engine is asked for token ids until it owes an answer. A request that waits for the answer gets
// it from another engine, and no other request waits.
func TestNobodyAsksAnEngineForTokensThatOwesAnAnswer(t *testing.T) {
	in(t, setup{config: func(c *config.Config) {
		longAnswers(c)
		c.Local = config.LocalAlways // no prompt of a request goes to a prefill replica
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
			t.Errorf("%d of 24 requests waited for the engine that stands still, want the first that asked it", late)
		}
		if n := w.count("tandem_token_ids_total", "estimate"); n != 0 {
			t.Errorf("of %d prompts the length was estimated, though engines could tell", n)
		}
		time.Sleep(time.Minute) // in virtual time: the engine goes on
		before := w.tokenQuestions(w.p[0])
		for i := range 24 {
			w.ask(nthChat(100+i, true))
		}
		if w.tokenQuestions(w.p[0]) == before {
			t.Error("the engine is not asked any more, though it goes on")
		}
	})
}

// tokenQuestions counts how often the engine was asked for token ids.
func (w *world) tokenQuestions(e *simulated) (n int) {
	for _, q := range w.posts(true) {
		asks := q.path == "/tokenize" || strings.HasSuffix(q.path, "/render")
		if asks && q.engine == strings.TrimSuffix(e.addr, ".internal:8000") {
			n++
		}
	}
	return n
}
