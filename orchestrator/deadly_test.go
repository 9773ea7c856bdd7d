package orchestrator

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// A request kills every engine that gets it. It kills two engines but not a third, however many engines
// and attempts are left. Two engines that die under one request are the only sign of such a request.
func TestDeadlyRequestEndsTwoEngines(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			often := func(c *config.Config) { c.Retry.Attempts = 5 }
			in(t, setup{decode: 5, config: often}, func(w *world) {
				p := completion(stream)
				p.body = strings.Replace(p.body, `"model"`, `"user":"deadly","model"`, 1)
				ended := w.endsEngines(`"deadly"`)
				w.failed(p, w.ask(p), 502)
				if n := ended(); n != 2 {
					t.Errorf("the request killed %d engines, want 2", n)
				}
				time.Sleep(20 * time.Second) // the engines are back
			})
		})
	}
}

// endsEngines kills every decode engine that gets a request with this text. The returned function counts
// them.
func (w *world) endsEngines(text string) (ended func() int) {
	var mu sync.Mutex
	found := map[string]bool{}
	w.at("decode", func(replica string) {
		e := w.by(replica)
		go func() {
			time.Sleep(time.Millisecond) // the request was sent by then
			for _, leg := range w.posts(false) {
				if leg.engine != e.name || !strings.Contains(leg.body, text) {
					continue
				}
				mu.Lock()
				found[e.addr] = true
				mu.Unlock()
				fault(enginesim.Fault{Kind: "restart", For: 10 * time.Second})(w, e)
				return
			}
		}()
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(found)
	}
}
