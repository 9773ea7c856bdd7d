package orchestrator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

func version33(_ string, o *enginesim.Options) { o.Version = "0.33.0" }

// A sleeping prefill engine gets no requests and is not ejected for requests that it left unfinished.
// After it wakes it is used again, with the new registration of its memory.
func TestASleepingPrefillEngineIsNotADeadOne(t *testing.T) {
	in(t, setup{engine: version33, config: func(c *config.Config) {
		atOnce(c)
		c.Timeouts.Prefill = time.Minute // else the legs on p0 end as slow ones, and draw from the retry budget
	}}, func(w *world) {
		for i := range 4 { // so that both decode engines know both prefill engines
			w.exact(nthChat(i, true), w.ask(nthChat(i, true)))
		}
		p0 := w.p[0]
		p0.Sleep(1)
		var all []*pending
		for i := range 8 { // some reach p0 before the router has read its metrics
			all = append(all, w.begin(nthChat(10+i, true)))
		}
		for i, x := range all {
			w.exact(nthChat(10+i, true), x.end())
		}
		time.Sleep(10 * time.Second)
		if n := w.count("tandem_replica_state", fleet.StateAsleep); n != 1 {
			t.Errorf("p0 has the state asleep %d times, want 1", n)
		}
		before := p0.Calls()["/v1/completions"]
		for i := range 8 {
			w.exact(nthChat(20+i, true), w.ask(nthChat(20+i, true)))
		}
		if n := p0.Calls()["/v1/completions"] - before; n != 0 {
			t.Errorf("p0 got %d requests while it slept", n)
		}
		if got := w.get("admin", "/readyz"); got.status != http.StatusOK ||
			!strings.Contains(got.raw, fleet.SleepCause) {
			t.Errorf("/readyz: %d %s", got.status, got.raw)
		}
		if got := w.get("front", "/readyz"); !strings.Contains(got.raw, "sleep mode") {
			t.Errorf("the front's /readyz: %s", got.raw)
		}
		if n := w.count("tandem_replica_state", ""); n != 1 {
			t.Errorf("%d states are set, want only asleep: p0 must not count as ejected", n)
		}
		p0.Wake()
		time.Sleep(10 * time.Second)
		before = p0.Calls()["/v1/completions"]
		for i := range 8 {
			w.exact(nthChat(30+i, true), w.ask(nthChat(30+i, true)))
		}
		if n := p0.Calls()["/v1/completions"] - before; n == 0 {
			t.Error("p0 got no request after it woke")
		}
		if n := w.count("tandem_replica_state", fleet.StateAsleep); n != 0 {
			t.Errorf("p0 still has the state asleep %d times, want 0", n)
		}
	})
}

// While every decode engine sleeps, the router is not ready and /readyz gives the reason.
func TestAPoolThatSleepsIsNotReady(t *testing.T) {
	in(t, setup{engine: version33, config: atOnce}, func(w *world) {
		for _, d := range w.d {
			d.Sleep(2)
		}
		time.Sleep(10 * time.Second)
		if got := w.get("admin", "/readyz"); got.status != http.StatusServiceUnavailable {
			t.Errorf("/readyz: %d %s", got.status, got.raw)
		}
		for _, d := range w.d {
			d.Wake()
		}
		time.Sleep(10 * time.Second)
		w.exact(chat(false), w.ask(chat(false)))
	})
}

// Engines of vLLM 0.32 and 0.33 do not exchange KV blocks, because their NIXL connectors have different
// versions. Requests are split only within a version.
func TestVersionsOfAMixedFleetAreNotPaired(t *testing.T) {
	mixed := func(name string, o *enginesim.Options) {
		if o.Version = "0.32.0"; name == "p1" || name == "d1" {
			o.Version = "0.33.0"
		}
	}
	in(t, setup{engine: mixed}, func(w *world) {
		pairs := map[string]int{}
		for i := range 12 {
			w.wire.forget()
			p := nthChat(i, i%2 == 0)
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			var pair strings.Builder
			for _, leg := range legs {
				pair.WriteString(leg.engine)
			}
			pairs[pair.String()]++
		}
		if pairs["p0d1"]+pairs["p1d0"] > 0 || pairs["p0d0"]+pairs["p1d1"] == 0 {
			t.Errorf("pairs: %v, want pairs within a version only", pairs)
		}
		for _, d := range w.d {
			for _, st := range d.Stats() {
				if st.NixlFailed > 0 {
					t.Errorf("%s has %d failed transfers", d.name, st.NixlFailed)
				}
			}
		}
	})
}
