package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// A decode engine dies with an unstreamed leg, before or after it has asked for the blocks. A dead engine
// asks nothing again, so the prefill leg is not sent again: with the same id it would leave the blocks of the
// first prefill leg held for ever. settled waits for the lease.
func TestMooncakeOfADeadDecodeEngine(t *testing.T) {
	brief := func(_ string, o *enginesim.Options) { o.Core.Lease = 30 * time.Second }
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 60 * time.Millisecond} {
		in(t, mooncake(setup{engine: brief}), func(w *world) {
			dead := false
			w.at("decode", func(at string) {
				if !dead {
					dead = true
					later(after, fault(enginesim.Fault{Kind: "restart", For: 10 * time.Second}))(w, w.by(at))
				}
			})
			w.exact(completion(false), w.ask(completion(false)))
			time.Sleep(5 * time.Second)
			if n := w.count("tandem_rescues_total", "prefilled"); n != 0 {
				t.Errorf("dead after %v: %d prefill legs were sent again", after, n)
			}
		})
	}
}
