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

// logsTo lets a router write its log there.
func logsTo(log *bytes.Buffer) func(*Options) {
	return func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
}

// panicLines is how many lines of a log tell of one in that place.
func panicLines(log *bytes.Buffer, where string) (n int) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, "panic") &&
			strings.Contains(line, "where="+where) {
			n++
		}
	}
	return n
}

// Watchers that panic, in whatever they ask, begin anew: the process lives, the log says what happened, and
// the replicas come back.
func TestWatchersOutlivePanics(t *testing.T) {
	way := &blocked{}
	bug := func(context.Context) error { panic("a bug") }
	var log bytes.Buffer
	in(t, setup{config: longAnswers, options: func(o *Options) { way.between(o); logsTo(&log)(o) }},
		func(w *world) {
			way.fails.Store(&bug)
			w.slowMetrics(3 * time.Second) // so that some ask for /health too
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
		t.Errorf("the log tells of %d panics of watchers, want some of each of four:\n%s", n, log.String())
	}
}

// faulty is a connector that panics where a condition holds.
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

// A trial that panics has shown nothing: the next request is the trial, and the replica is not kept out for
// good.
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
			t.Error("it is still kept out")
		}
		if n := w.count("tandem_trials_total", "unclear"); n != 1 {
			t.Errorf("%d trials are counted as unclear, want one", n)
		}
		if n := w.count("tandem_trials_total", "passed"); n != 0 {
			t.Errorf("%d trials are counted as passed", n)
		}
	})
	if n := panicLines(&log, "trial"); n != 1 {
		t.Errorf("the log tells of %d panics of trials, want one", n)
	}
}

// Blocks whose give-back panics come free with their lease.
func TestAGiveBackThatPanics(t *testing.T) {
	var log bytes.Buffer
	options := func(o *Options) {
		o.Connector = faulty{now: func(id string) bool { return id == "give back" }}
		logsTo(&log)(o)
	}
	in(t, setup{options: options}, func(w *world) {
		w.at("handoff", func(string) {
			w.at("handoff", nil)
			time.Sleep(16 * time.Second) // its params are too old then
		})
		w.exact(chat(true), w.ask(chat(true)))
	})
	if n := panicLines(&log, "give-back"); n != 1 {
		t.Errorf("the log tells of %d panics of give-backs, want one", n)
	}
}

// A trial that cannot be made is no trial that passed. Here no partner is left to try with, and no decode leg
// to ask alone.
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
			t.Errorf("%d trials are counted as passed and %d as unclear, want one that is unclear", passed, unclear)
		}
		fault(enginesim.Fault{Kind: "accept"})(w, w.d[0])
		time.Sleep(3 * time.Second)
	})
}
