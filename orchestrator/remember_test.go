package orchestrator

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// /debug/history has the last hour: how long requests took and which replicas served them, for the fleet
// and for each replica.
func TestTheLastHour(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for i := range 30 {
			p := numbered(i%3, true)
			w.exact(p, w.ask(p))
			time.Sleep(2 * time.Second)
		}
		past := func(path string) page.Past {
			var p page.Past
			got := w.get("admin", path)
			var raw struct {
				Series map[string][]*float32
			}
			if err := json.Unmarshal([]byte(got.raw), &raw); err != nil || got.status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, got.status, got.raw)
			}
			p.Series = map[string]page.Points{}
			for name, points := range raw.Series {
				for _, x := range points {
					if x != nil {
						p.Series[name] = append(p.Series[name], *x)
					}
				}
			}
			return p
		}
		sum := func(ps page.Points) (n float32) {
			for _, x := range ps {
				n += x
			}
			return n
		}
		all := past("/debug/history")
		if n := sum(all.Series["requests"]); n < 25 || n > 30 || sum(all.Series["failed"]) != 0 {
			t.Errorf("%v requests, %v failed", n, sum(all.Series["failed"]))
		}
		for _, name := range []string{
			"ttft_p50", "ttft_p99", "itl_p50", "hits_delivered", "split", "kv_prefill", "kv_decode",
		} {
			if len(all.Series[name]) == 0 {
				t.Errorf("the history lacks %s", name)
			}
		}
		if first := all.Series["ttft_p50"]; first[0] < 20 || first[0] > 1000 {
			t.Errorf("TTFT %v ms", first)
		}
		var there float32
		for _, e := range w.p {
			there += sum(past("/debug/history?replica=" + e.addr).Series["requests"])
		}
		if n := sum(all.Series["requests"]); there != n {
			t.Errorf("the replicas' histories have %v prefilled requests of %v", there, n)
		}
		if got := w.get("admin", "/debug/history?replica=p9"); got.status != http.StatusNotFound {
			t.Errorf("of an unknown replica: %d %s", got.status, got.raw)
		}
	})
}

// If no request is split for ten minutes, the log says so once. The page and a state of the prefill
// replicas show it while it lasts.
func TestAPrefillPoolThatNobodyUses(t *testing.T) {
	log := &logged{}
	in(t, setup{
		config:  func(c *config.Config) { c.Local = config.LocalAuto },
		options: func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) },
	}, func(w *world) {
		ask := func(n int) {
			for i := range n {
				p := prompt{path: "/v1/completions", body: fmt.Sprintf(
					`{"model":"sim","max_tokens":2,"temperature":0,"prompt":"say %d"}`, i)}
				if got := w.ask(p); got.status != http.StatusOK {
					t.Errorf("status %d", got.status)
				}
				time.Sleep(4 * time.Second)
			}
		}
		ask(120)
		if w.count("tandem_replica_state", fleet.StatePoolIdle) != 0 || len(log.of("prefill pool is idle")) != 0 {
			t.Error("the idle pool is reported too early")
		}
		ask(60)
		if n := w.count("tandem_replica_state", fleet.StatePoolIdle); n != 2 {
			t.Errorf("%d replicas are shown in an idle pool, want 2", n)
		}
		live := w.o.admin.Live()
		if len(live.Hints) != 1 || !strings.Contains(live.Hints[0], "tandem advise") || len(live.Out) != 0 ||
			!strings.Contains(live.Replicas[0].Condition.Text, "pool idle: none of the 1") {
			t.Errorf("hints %q, %+v", live.Hints, live.Replicas[0].Condition)
		}
		if n := len(log.of("prefill pool is idle")); n != 1 {
			t.Errorf("the idle pool is logged %d times, want once", n)
		}
		whole := *w.cfg
		whole.Local = config.LocalAlways
		w.apply(&whole)
		time.Sleep(20 * time.Second)
		if len(w.o.admin.Live().Hints) != 0 || w.count("tandem_replica_state", fleet.StatePoolIdle) != 0 {
			t.Error("the idle pool is still reported, although local is always")
		}
	})
}
