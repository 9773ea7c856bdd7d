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

// A request that ends every engine that gets it ends two and no third, however many are left and however
// many attempts it has. Two engines that end under one request are the only sign of such a request.
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
					t.Errorf("it has ended %d engines, want 2", n)
				}
				time.Sleep(20 * time.Second) // they are back
			})
		})
	}
}

// endsEngines ends every decode engine that gets a request with this text, and says how many it has ended.
func (w *world) endsEngines(text string) (ended func() int) {
	var mu sync.Mutex
	found := map[string]bool{}
	w.at("decode", func(replica string) {
		e := w.by(replica)
		go func() {
			time.Sleep(time.Millisecond) // it is sent by then
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
