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

// questions returns how many health requests the engine got.
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

// slowProbes keeps the watchers from probing during the test.
func slowProbes(c *config.Config) {
	c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Minute, time.Minute
}

// Many connections to one engine end at once, and their requests ask for its health together. The first
// health request may have begun before the other connections ended, and its answer may be too old for
// them. The others share a second one.
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
					t.Errorf("%s: a request heard that the engine works: %v", c.name, works)
				}
			}
			if n := w.questions(w.d[0]); n != 2 {
				t.Errorf("%s: %d asked %d questions, want 2", c.name, many, n)
			}
			time.Sleep(time.Minute)
			if w.o.dead(w.t.Context(), to) { // later requests ask again
				t.Errorf("%s: the engine still counts as dead later", c.name)
			}
		})
	}
}
