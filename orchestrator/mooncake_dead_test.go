package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
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

// A decode engine with NIXL would end with its first Mooncake leg. It gets no leg, and the reason is told.
func TestMooncakeSparesNIXLEngines(t *testing.T) {
	const why = "d0.internal:8000 has the NIXL connector, and p"
	for _, version := range []string{"0.32.0", "0.33.0"} { // /metrics show Mooncake since 0.33
		other := func(name string, o *enginesim.Options) {
			if o.Version = version; name == "d0" {
				o.Core.Mooncake, o.Core.Role = false, core.Both
			}
		}
		in(t, mooncake(setup{engine: other}), func(w *world) {
			for i := range 8 {
				w.wire.forget()
				w.exact(nthChat(i, true), w.ask(nthChat(i, true)))
				if _, two := w.legs(); two.engine != "d1" {
					t.Errorf("leg 2 went to %s: %s", two.engine, two.body)
				}
			}
			if got := w.explained(chat(true)); !strings.Contains(got, why) {
				t.Errorf("/debug/explain does not say %q: %s", why, got)
			}
			const do = "start d0.internal:8000 with --kv-transfer-config"
			if got := w.get("admin", "/debug/replicas"); !strings.Contains(got.raw, do) {
				t.Errorf("the state of d0 does not say %q: %s", do, got.raw)
			}
		})
	}
}
