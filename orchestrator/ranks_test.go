package orchestrator

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// twoRanks gives engine d0 two data-parallel ranks.
func twoRanks(name string, o *enginesim.Options) {
	if name == "d0" {
		o.DPRanks = 2
	}
}

// An engine with several ranks chooses the rank for /v1/responses itself, so the router predicts nothing
// about its cache. Requests to the other APIs name the rank, and the prediction is that rank's.
func TestAResponseIsNotPinned(t *testing.T) {
	in(t, setup{decode: 1, engine: twoRanks, config: func(c *config.Config) { c.Local = config.LocalAlways }},
		func(w *world) {
			for _, p := range []prompt{responses(false), chat(false)} {
				for range 2 {
					w.exact(p, w.ask(p))
				}
				r := w.o.ring.Newest(1)[0]
				if pinned := p.path != "/v1/responses"; r.Mode != "local" || (r.Captured >= 0) != pinned ||
					pinned && (r.Captured == 0 || r.Captured != r.Delivered) {
					t.Errorf("%s (%s): %d tokens predicted, %d delivered", p.path, r.Mode, r.Captured, r.Delivered)
				}
			}
		})
}

// The decode rank of the pair must give the lease back, because it may be the only rank that knows the
// prefill engine.
func TestALeaseIsGivenBackByItsRank(t *testing.T) {
	in(t, setup{decode: 1, engine: twoRanks}, func(w *world) {
		late := sync.OnceFunc(func() { time.Sleep(w.cfg.Connector.Margin + time.Second) })
		w.at("handoff", func(string) { late() })
		w.exact(chat(true), w.ask(chat(true)))
		found := false
		for _, s := range w.posts(false) {
			if !strings.Contains(s.body, "give-back") {
				continue
			}
			found = true
			if rank := s.header.Get("X-Data-Parallel-Rank"); s.engine != "d0" || rank == "" {
				t.Errorf("the lease was given back by rank %q of %s", rank, s.engine)
			}
		}
		if !found {
			t.Error("no lease was given back: the test shows nothing")
		}
	})
}
