package orchestrator

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// logsTo makes the router write its log to this buffer.
func logsTo(log *bytes.Buffer) func(*Options) {
	return func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
}

// panicLines returns how many log lines report a panic at this place.
func panicLines(log *bytes.Buffer, where string) (n int) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, "panic") &&
			strings.Contains(line, "where="+where) {
			n++
		}
	}
	return n
}

// A watcher that panics, in any of its requests, starts again. The process lives on, the log has the
// panic, and the replicas come back.
func TestWatchersOutlivePanics(t *testing.T) {
	way := &blocked{}
	bug := func(context.Context) error { panic("a bug") }
	var log bytes.Buffer
	in(t, setup{config: longAnswers, options: func(o *Options) { way.between(o); logsTo(&log)(o) }},
		func(w *world) {
			way.fails.Store(&bug)
			w.slowMetrics(3 * time.Second) // so that some watchers ask for /health too
			for _, e := range w.all() {
				w.net.Cut(e.addr)
			}
			time.Sleep(10 * time.Second)
			way.fails.Store(nil)
			w.slowMetrics(0)
			time.Sleep(10 * time.Second)
			w.usable("the bug is gone")
		})
	if n := panicLines(&log, "watcher"); n < 4 {
		t.Errorf("the log has %d panics of watchers, want at least one of each of four:\n%s", n, log.String())
	}
}

// faulty is a connector that panics if a condition holds.
type faulty struct {
	connector.NIXL
	now func(id string) bool
}

func (f faulty) EditPrefill(leg *connector.Leg, pair connector.Pair) error {
	if f.now(pair.AttemptID) {
		panic("a bug")
	}
	return f.NIXL.EditPrefill(leg, pair)
}

func (f faulty) EditDecode(
	leg *connector.Leg, pair connector.Pair, reply *connector.Reply, use connector.Use,
) error {
	if use.GiveBack && f.now("give back") {
		panic("a bug")
	}
	return f.NIXL.EditDecode(leg, pair, reply, use)
}

// A trial that panics has no result. The next request is the trial instead, so the replica is not kept out
// forever.
func TestATrialThatPanicsShowsNothing(t *testing.T) {
	var log bytes.Buffer
	options := func(o *Options) {
		o.Connector = faulty{now: func(id string) bool { return strings.HasPrefix(id, "tandem-canary") }}
		logsTo(&log)(o)
	}
	in(t, setup{config: atOnce, options: options}, func(w *world) {
		id := replica.ID(w.d[0].addr)
		a := w.o.planner.Outliers().Begin(id, outlier.Decode, time.Now())
		w.o.trials.Announce(a.Bad(outlier.Failure{Kind: outlier.ServerError}, time.Now()))
		a.End()
		time.Sleep(3 * time.Second)
		if hasState(w.o.fleet.Endpoint(id), id, fleet.StateEjectedDecode) {
			t.Error("the replica is still ejected")
		}
		if n := w.count("tandem_trials_total", "unclear"); n != 1 {
			t.Errorf("counted %d trials as unclear, want 1", n)
		}
		if n := w.count("tandem_trials_total", "passed"); n != 0 {
			t.Errorf("counted %d trials as passed, want 0", n)
		}
	})
	if n := panicLines(&log, "trial"); n != 1 {
		t.Errorf("the log has %d panics of trials, want 1", n)
	}
}

// If giving blocks back panics, they become free when their lease expires.
func TestAGiveBackThatPanics(t *testing.T) {
	var log bytes.Buffer
	options := func(o *Options) {
		o.Connector = faulty{now: func(id string) bool { return id == "give back" }}
		logsTo(&log)(o)
	}
	in(t, setup{options: options}, func(w *world) {
		w.at("handoff", func(string) {
			w.at("handoff", nil)
			time.Sleep(16 * time.Second) // after that the params are too old
		})
		w.exact(chat(true), w.ask(chat(true)))
	})
	if n := panicLines(&log, "give-back"); n != 1 {
		t.Errorf("the log has %d panics of give-backs, want 1", n)
	}
}

// A trial that cannot be made has not passed. Here no decode replica is left as a partner for the prefill
// replica.
func TestATrialThatCannotBeMadeIsUnclear(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		atOnce(c)
		longAnswers(c)
	}}, func(w *world) {
		fault(enginesim.Fault{Kind: "refuse"})(w, w.d[0])
		w.net.Cut(w.d[0].addr)
		time.Sleep(3 * time.Second)
		id := replica.ID(w.p[0].addr)
		a := w.o.planner.Outliers().Begin(id, outlier.Prefill, time.Now())
		w.o.trials.Announce(a.Bad(outlier.Failure{Kind: outlier.ServerError}, time.Now()))
		a.End()
		time.Sleep(3 * time.Second)
		passed, unclear := w.count("tandem_trials_total", "passed"), w.count("tandem_trials_total", "unclear")
		if passed != 0 || unclear != 1 {
			t.Errorf("counted %d trials as passed and %d as unclear, want 0 and 1", passed, unclear)
		}
		fault(enginesim.Fault{Kind: "accept"})(w, w.d[0])
		time.Sleep(3 * time.Second)
	})
}
