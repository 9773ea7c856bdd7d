package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// Requests for the model itself wait behind three requests for an adapter. A replica without the adapter
// joins. It serves the requests for the model, although the first three in the queue cannot go there.
func TestWhoWaitsBehindOthersGoesToWhoJoins(t *testing.T) {
	for _, large := range []bool{false, true} {
		s := narrow(nil)
		s.decode = 2
		s.engine = func(name string, o *enginesim.Options) {
			if name != "d1" {
				o.Adapters = []string{"ad"}
			}
			if name[0] == 'd' {
				o.Core.Blocks = 30
			}
		}
		in(t, s, func(w *world) {
			all := w.cfg
			w.apply(without(all, w.d[1].addr))
			tall := func(p prompt, tokens string) prompt {
				p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":`+tokens, 1)
				return p
			}
			p := chat(true) // needs more than half of a replica
			if !large {
				p.body = strings.Replace(p.body, words(120), words(80), 1)
			}
			ofAdapter := p
			ofAdapter.body = strings.Replace(p.body, `"sim"`, `"ad"`, 1)
			others := []*pending{w.begin(tall(chat(true), "150"))}
			come := func(p prompt, n int) {
				for range n {
					time.Sleep(time.Millisecond)
					others = append(others, w.begin(p))
				}
			}
			come(ofAdapter, 3)
			come(p, 1)
			behind := others[len(others)-1]
			come(ofAdapter, 3)
			time.Sleep(10 * time.Millisecond)
			if n := w.o.queue.length(); n != 7 {
				t.Fatalf("%d requests wait, want 7", n)
			}
			w.apply(all)
			got := <-behind.heard
			w.exact(p, got)
			if got.took > time.Second {
				t.Errorf("large %v: answered after %v, though an idle replica had joined",
					large, got.took)
			}
			behind.heard <- got
			for _, o := range others {
				o.end()
			}
		})
	}
}
