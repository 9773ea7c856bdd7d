package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// slowMetrics delays /metrics of every engine by d; all other paths stay fast.
func (w *world) slowMetrics(d time.Duration) {
	for _, e := range w.all() {
		fault(enginesim.Fault{Kind: "slow_metrics", For: d})(w, e)
	}
}

// One decode engine is dead. The others are so busy that /metrics takes longer than a probe may, for the
// whole test. They answer requests and /health, so they stay up. Late load reports are still used, and an
// engine without any load report is shown.
func TestSlowMetricsTakeNobodyOut(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slow  time.Duration
		state int     // replicas that report no load
		age   float64 // seconds; the greatest age of a load report
	}{
		{"late", 3 * time.Second, 0, 10},
		{"never", time.Hour, 3, 70},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{config: longAnswers}, func(w *world) {
				vanish(w, w.d[0])
				w.slowMetrics(tt.slow)
				for i := range 12 {
					p := guardedPrompt(idPrompt(i, 100), "")
					w.exact(p, w.ask(p))
					time.Sleep(5 * time.Second)
				}
				if n := w.count("tandem_replica_up", ""); n != 3 {
					w.t.Errorf("%d replicas are up, want 3 of 4", n)
				}
				if n := w.count("tandem_replica_state", fleet.StateUnreported); n != tt.state {
					w.t.Errorf("%d replicas are shown as reporting no load, want %d", n, tt.state)
				}
				if age := w.o.decode.Status(time.Now())[1].LoadAge / 1e3; age > tt.age {
					w.t.Errorf("the report is %v s old, want at most %v", age, tt.age)
				}
				w.slowMetrics(0)
				time.Sleep(15 * time.Second)
				if n := w.count("tandem_replica_state", fleet.StateUnreported); n != 0 {
					w.t.Errorf("%d replicas are shown as reporting no load, want 0 after all report again", n)
				}
			})
		})
	}
}

// An engine without load reports is taken out if /health reports a dead core or does not answer at all.
func TestNoSignOfLifeTakesOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		happen trouble
		within time.Duration
	}{
		{"it stands still", fault(enginesim.Fault{Kind: "freeze", For: 40 * time.Second}), 17 * time.Second},
		{"its core is dead", both(fault(enginesim.Fault{Kind: "slow_metrics", For: time.Hour}),
			fault(enginesim.Fault{Kind: "fail", Path: "/health", Status: 503, Count: -1})), 17 * time.Second},
		{"nobody listens", vanish, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{config: longAnswers}, func(w *world) {
				tt.happen(w, w.d[0])
				time.Sleep(tt.within)
				if n := w.count("tandem_replica_up", w.d[0].addr); n != 0 {
					w.t.Errorf("still up after %v", tt.within)
				}
				w.net.Refuse(w.d[0].addr, false)
				fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
				time.Sleep(40 * time.Second)
				if n := w.count("tandem_replica_up", w.d[0].addr); n != 1 {
					w.t.Errorf("not up again")
				}
			})
		})
	}
}

// Signs of life other than /metrics count. A leg that waits long is not aborted for silence if only the
// load report is missing; it is aborted if the engine is frozen.
func TestSlowMetricsAreNoSilence(t *testing.T) {
	for _, tt := range []struct {
		name       string
		happen     trouble
		took, most time.Duration
		silent     int
	}{
		{
			"a long wait",
			both(
				fault(enginesim.Fault{Kind: "slow", Factor: 700}),
				later(15*time.Second, fault(enginesim.Fault{Kind: "slow", Factor: 1})),
			),
			12 * time.Second, 30 * time.Second, 0,
		},
		{"it stands still", fault(enginesim.Fault{Kind: "freeze", For: 60 * time.Second}), 0, 20 * time.Second, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{prefill: 1, config: longAnswers}, func(w *world) {
				w.slowMetrics(time.Hour)
				time.Sleep(15 * time.Second)
				at := ""
				w.at("decode", func(name string) {
					if at == "" {
						at = name
						tt.happen(w, w.by(name))
					}
				})
				p := guardedPrompt(idPrompt(1, 100), `,"stream":true`)
				got := w.ask(p)
				w.exact(p, got)
				if got.took < tt.took || got.took > tt.most {
					w.t.Errorf("took %v, want from %v to %v", got.took, tt.took, tt.most)
				}
				if n := w.count("tandem_decode_distrusted_total", at); n != tt.silent {
					w.t.Errorf("distrusted %d times, want %d", n, tt.silent)
				}
				w.slowMetrics(0)
				time.Sleep(time.Minute)
			})
		})
	}
}

// An engine that could not report its metrics during the first probe is probed again. After that the
// router notices its restarts like those of any engine.
func TestUndescribedEngineIsDescribedLater(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: longAnswers}, func(w *world) {
		w.apply(without(w.cfg, w.d[0].addr))
		fault(enginesim.Fault{Kind: "fail", Path: "/metrics", Status: 500, Count: 3})(w, w.d[0])
		w.apply(w.cfg)
		time.Sleep(500 * time.Millisecond)
		facts := func() replica.Facts { return w.o.fleet.Endpoint(replica.ID(w.d[0].addr)).Member.Facts }
		if f := facts(); f.Started != 0 || f.Blocks != 0 {
			w.t.Fatalf("facts are known at once, %+v: this test needs an engine without facts", f)
		}
		time.Sleep(10 * time.Second)
		if f := facts(); f.Started == 0 || f.Blocks == 0 || f.BlockSize == 0 {
			w.t.Errorf("facts are still missing: %+v", f)
		}
		fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.d[0])
		time.Sleep(20 * time.Second)
		if n := w.count("tandem_engine_restarts_total", w.d[0].addr); n != 1 {
			w.t.Errorf("the router noticed %d restarts, want 1", n)
		}
	})
}
