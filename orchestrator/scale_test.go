package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// value returns the value of a series in /metrics, or -1 if there is no such series.
func (w *world) value(series string) float64 {
	w.t.Helper()
	for line := range strings.Lines(w.get("admin", "/metrics").raw) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v := 0.0
			if _, err := fmt.Sscan(rest, &v); err != nil {
				w.t.Fatalf("/metrics: %q", line)
			}
			return v
		}
	}
	return -1
}

// The metrics for autoscalers: the demand on each pool rises with the traffic and falls after it,
// whichever pool computes prompts; each plan has a predicted TTFT; the free blocks of decode replicas are
// known.
func TestScaleSignals(t *testing.T) {
	for _, local := range []string{config.LocalNever, config.LocalAlways} {
		t.Run("local "+local, func(t *testing.T) {
			in(t, setup{config: func(c *config.Config) { c.Local = local }}, func(w *world) {
				pools := []string{`tandem_demand_replicas{pool="prefill"}`, `tandem_demand_replicas{pool="decode"}`}
				for _, series := range pools {
					if got := w.value(series); got != 0 {
						t.Errorf("%s is %v without traffic, want 0", series, got)
					}
				}
				const requests = 20
				for i := range requests {
					p := numbered(i, true)
					w.exact(p, w.ask(p))
				}
				busy := map[string]float64{}
				for _, series := range pools {
					if busy[series] = w.value(series); busy[series] <= 0 || busy[series] > 4 {
						t.Errorf("%s is %v under traffic", series, busy[series])
					}
				}
				time.Sleep(10 * time.Minute)
				for _, series := range pools {
					if got := w.value(series); got > busy[series]/10 {
						t.Errorf("%s is %v after the traffic, %v before", series, got, busy[series])
					}
				}
				if n := w.value("tandem_predicted_ttft_seconds_count"); n != requests {
					t.Errorf("counted %v predicted TTFTs of %d plans", n, requests)
				}
				if s := w.value("tandem_predicted_ttft_seconds_sum"); s <= 0 || s > requests {
					t.Errorf("the mean predicted TTFT is %v s", s/requests)
				}
				if got := w.value("tandem_ttft_goal_seconds"); got != -1 {
					t.Errorf("the goal is %v, but none is configured", got)
				}
				free := w.value(`tandem_decode_free_blocks{replica="` + w.d[0].addr + `"}`)
				all := w.value(`tandem_decode_capacity_blocks{replica="` + w.d[0].addr + `"}`)
				if free <= 0 || all < free || all > 2*free {
					t.Errorf("%v of %v blocks of an idle replica are free", free, all)
				}
			})
		})
	}
}

// A request that is refused as too late counts with its predicted TTFT. Otherwise the predictions would
// seem to meet the goal.
func TestLatePredictionsCount(t *testing.T) {
	const goal = 100 * time.Millisecond
	in(t, setup{config: func(c *config.Config) { c.Limits.FirstToken = goal }}, func(w *world) {
		if got := w.value("tandem_ttft_goal_seconds"); got != goal.Seconds() {
			t.Errorf("the goal is %v", got)
		}
		var all []*pending
		for i := range 40 {
			all = append(all, w.begin(numbered(i, true)))
		}
		refused := 0
		for _, p := range all {
			if p.end().status == 429 {
				refused++
			}
		}
		inTime := w.value(`tandem_predicted_ttft_seconds_bucket{le="0.1"}`)
		late := w.value("tandem_predicted_ttft_seconds_count") - inTime
		if refused == 0 || int(late) < refused {
			t.Errorf("%v predictions exceed the goal, but %d requests were refused", late, refused)
		}
	})
}
