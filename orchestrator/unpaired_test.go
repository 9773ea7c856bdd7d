package orchestrator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// unpairedOf returns the number of replicas that are shown as unpaired.
func (w *world) unpairedOf() int { return w.count("tandem_replica_state", fleet.StateUnpaired) }

// largeBlocks gives the engines with these names blocks of 32 tokens. Other engines have blocks of 16.
func largeBlocks(names ...string) func(name string, o *enginesim.Options) {
	return func(name string, o *enginesim.Options) {
		if slices.Contains(names, name) {
			o.Core.BlockSize = 32
		}
	}
}

// warnsOnce checks that log warns of exactly one state of a replica.
func warnsOnce(t *testing.T, log string) {
	t.Helper()
	if n := strings.Count(log, "level=WARN msg=\"replica state\""); n != 1 {
		t.Errorf("%d log lines warn of a state, want 1:\n%s", n, log)
	}
}

// A replica whose block size differs from that of all replicas in the other pool is shown as unpaired,
// with the reason, and in one log line. The state ends when a replica with the same block size joins.
func TestAReplicaThatFitsNobodyIsSeen(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{engine: largeBlocks("p1", "d1"), options: logsTo(&log)}, func(w *world) {
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired, want 0: each has a partner", n)
		}
		w.apply(without(w.cfg, w.d[1].addr))
		if n := w.count("tandem_replica_state", w.p[1].addr); n != 1 || w.unpairedOf() != 1 {
			t.Errorf("%d states of %s are set, and %d replicas are unpaired; want 1 and 1",
				n, w.p[1].addr, w.unpairedOf())
		}
		shown, err := json.Marshal(w.o.State().Status())
		if err != nil ||
			!strings.Contains(string(shown),
				`"state":"unpaired",`+
					`"cause":"it makes a pair with no replica of the other pool: d0.internal:8000: `+
					`different block sizes: 32 at p1.internal:8000 and 16 at d0.internal:8000; `+
					`what to do: start all engines with the same --block-size"`) {
			t.Errorf("/debug/replicas: %v, %s", err, shown)
		}
		w.apply(w.cfg)
		time.Sleep(time.Second)
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired after a partner joined", n)
		}
	})
	warnsOnce(t, log.String())
}

// A server that never answers, or that has just been found, hides no replica that fits nobody: its state
// neither waits for the server nor ends and begins again.
func TestASilentServerHidesNoReplicaThatFitsNobody(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{engine: largeBlocks("p1", "d1"), options: logsTo(&log)}, func(w *world) {
		beside := func(addrs ...string) {
			cfg := *without(w.cfg, w.d[1].addr)
			for _, addr := range addrs {
				cfg.Pools.Decode.Replicas = append(cfg.Pools.Decode.Replicas, config.Replica{URL: "http://" + addr})
			}
			w.apply(&cfg)
			time.Sleep(time.Second)
			if n := w.count("tandem_replica_state", w.p[1].addr); n != 1 || w.unpairedOf() != 1 {
				t.Errorf("beside %v, %d states of %s are set, and %d replicas are unpaired; want 1 and 1",
					addrs, n, w.p[1].addr, w.unpairedOf())
			}
		}
		w.net.Refuse("refuses.internal:8000", true)
		beside("refuses.internal:8000")
		hangs, err := w.net.Listen("tcp", "hangs.internal:8000") // takes no connection
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hangs.Close() }()
		beside("refuses.internal:8000", "hangs.internal:8000")
		w.apply(w.cfg)
		time.Sleep(time.Second)
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired after a partner joined", n)
		}
	})
	warnsOnce(t, log.String())
}

// A replica is also unpaired while all its pairs are ejected.
func TestAReplicaWhosePairsAreEjectedIsSeen(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1}, func(w *world) {
		pair := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[0].addr)}
		for range 2 {
			failed := outlier.Failure{Kind: outlier.LoadFail}
			w.o.trials.Announce(w.o.planner.Outliers().NotLoaded(pair, failed, time.Now()))
		}
		if n := w.unpairedOf(); n != 2 {
			t.Errorf("%d replicas are unpaired, want 2", n)
		}
		time.Sleep(10 * time.Second) // a trial of the pair succeeds
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired after the trial", n)
		}
	})
}

// After a restart with another block size, an ejected pair no longer fits. It gets no trial, because a
// trial would crash its decode engine.
func TestAPairThatDoesNotFitIsNotTried(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, engine: largeBlocks("p0"), config: auto}, func(w *world) {
		pair := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[0].addr)}
		for range 2 {
			failed := outlier.Failure{Kind: outlier.LoadFail}
			w.o.trials.Announce(w.o.planner.Outliers().NotLoaded(pair, failed, time.Now()))
		}
		w.wire.forget()
		time.Sleep(time.Minute)
		if legs := w.posts(false); len(legs) != 0 || !w.o.planner.Outliers().PairOut(pair) {
			t.Errorf("the pair got a trial: %v", legs)
		}
		w.ask(completion(false)) // answered by a live engine
	})
}

// A fleet that never splits needs no pairs, so no replica is unpaired.
func TestNobodyIsUnpairedWhereNothingIsSplit(t *testing.T) {
	always := func(c *config.Config) { c.Local = config.LocalAlways }
	in(t, setup{engine: largeBlocks("d0", "d1"), config: always}, func(w *world) {
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired, want 0: nothing is split", n)
		}
		auto := *w.cfg
		auto.Local = config.LocalAuto
		w.apply(&auto)
		if n := w.unpairedOf(); n != 4 {
			t.Errorf("%d replicas are unpaired, want all 4 once requests may be split", n)
		}
		w.apply(w.cfg)
		if n := w.unpairedOf(); n != 0 {
			t.Errorf("%d replicas are unpaired, want 0: nothing is split any more", n)
		}
	})
}
