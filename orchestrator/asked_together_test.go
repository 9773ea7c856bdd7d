package orchestrator

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
)

// questions counts what the engine was asked of its health.
func (w *world) questions(e *simulated) (n int) {
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	for _, l := range w.wire.log {
		if l.addr == e.addr && bytes.HasPrefix(l.raw, []byte("GET /health ")) {
			n++
		}
	}
	return n
}

// slowProbes lets watchers ask nothing for a while.
func slowProbes(c *config.Config) {
	c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Minute, time.Minute
}

// Requests whose connections end at once ask their engine together. The first question may have begun before
// the other connections ended, and its answer be of that time: the others share a second one.
func TestManyAskAnEngineTogether(t *testing.T) {
	const many = 24
	for _, c := range []struct {
		name  string
		still enginesim.Fault
		works bool
	}{
		{"lives", enginesim.Fault{Kind: "freeze", For: 100 * time.Millisecond}, true},
		{"is silent", enginesim.Fault{Kind: "freeze", For: 20 * time.Second}, false},
	} {
		in(t, setup{prefill: 1, decode: 1, config: slowProbes}, func(w *world) {
			to := w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
			fault(c.still)(w, w.d[0])
			heard := make(chan bool, many)
			for range many {
				go func() { heard <- !w.o.dead(w.t.Context(), to) }()
				synctest.Wait()
			}
			for range many {
				if works := <-heard; works != c.works {
					t.Errorf("%s: one heard that it works: %v", c.name, works)
				}
			}
			if n := w.questions(w.d[0]); n != 2 {
				t.Errorf("%s: %d asked %d questions, want 2", c.name, many, n)
			}
			time.Sleep(time.Minute)
			if w.o.dead(w.t.Context(), to) { // later requests ask anew
				t.Errorf("%s: it seems dead later on", c.name)
			}
		})
	}
}
