package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// longPrefills allows long prefills, polls engines often, and leaves no retry budget.
func longPrefills(c *config.Config) {
	longAnswers(c)
	c.Timeouts.Prefill = 5 * time.Minute
	c.Retry.Min, c.Retry.Share = 0, 0
}

// A prefill engine freezes during a prompt. Once the router has noticed, another engine gets the request,
// whatever the prefill timeout and however exhausted the retry budget is. The frozen engine's result is
// not used when it continues.
func TestAPrefillIsTakenAwayFromAnEngineThatStandsStill(t *testing.T) {
	for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
		for _, stream := range []bool{true, false} {
			in(t, setup{order: order, config: func(c *config.Config) {
				longPrefills(c)
				atOnce(c)
			}}, func(w *world) {
				at := ""
				w.at("prefill", func(replica string) {
					if at == "" {
						at = replica
						fault(enginesim.Fault{Kind: "freeze", For: time.Minute})(w, w.by(at))
					}
				})
				p := chat(stream)
				got := w.ask(p)
				w.exact(p, got)
				if bound := (w.cfg.Connector.Lease - w.cfg.Connector.Margin) * 2 / 3; got.took > bound+2*time.Second {
					t.Errorf("order %v: the answer took %v, want at most 2 s more than the bound for silence",
						order, got.took)
				}
				held := 1
				if order == connector.Concurrent { // these decode engines need no prefill, and have answered already
					held = 0
				}
				if n := w.seriesOf("tandem_ejections_total", at, "prefill"); n != held {
					t.Errorf("order %v: the frozen engine was ejected %d times as a prefill replica, want %d",
						order, n, held)
				}
				if n := w.count("tandem_requests_total", "ok"); n != 1 {
					t.Errorf("order %v: %d requests succeeded, want 1", order, n)
				}
				time.Sleep(time.Minute + 10*time.Second)
			})
		}
	}
}

// Many prompts are on the frozen engine, and all are moved to another one.
func TestAllPrefillsAreTakenAwayFromAnEngineThatStandsStill(t *testing.T) {
	in(t, setup{config: longPrefills}, func(w *world) {
		fault(enginesim.Fault{Kind: "freeze", For: time.Minute})(w, w.p[0])
		var all []*pending
		for i := range 12 {
			all = append(all, w.begin(nthChat(i, true)))
		}
		for i, x := range all {
			got := x.end()
			w.exact(nthChat(i, true), got)
			if got.took > 15*time.Second {
				t.Errorf("request %d took %v", i, got.took)
			}
		}
		time.Sleep(time.Minute + 10*time.Second)
	})
}

// A long prefill on a working engine is left alone, with and without load reports of the engine.
func TestALongPrefillIsNoSilence(t *testing.T) {
	in(t, setup{prefill: 1, config: func(c *config.Config) {
		longPrefills(c)
		atOnce(c)
	}}, func(w *world) {
		w.slowMetrics(time.Hour)
		time.Sleep(15 * time.Second)
		fault(enginesim.Fault{Kind: "slow", Factor: 1100})(w, w.p[0])
		later(time.Second, fault(enginesim.Fault{Kind: "slow", Factor: 1}))(w, w.p[0])
		p := chat(true)
		got := w.ask(p)
		w.exact(p, got)
		if got.took < 20*time.Second {
			t.Errorf("took only %v: this test shows nothing", got.took)
		}
		if n := w.count("tandem_retries_total", ""); n != 0 {
			t.Errorf("%d retries, want 0", n)
		}
		w.blamed(0, 0)
		w.slowMetrics(0)
		time.Sleep(15 * time.Second)
	})
}
