package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// seriesNaming returns the lines of the metrics that name the replica.
func (w *world) seriesNaming(replica string) (lines []string) {
	for line := range strings.Lines(w.get("admin", "/metrics").raw) {
		if strings.Contains(line, `"`+replica+`"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// The series of a replica that has left remain while requests may still count there, and are deleted after
// that. If the replica is back by then, its series continue.
func TestSeriesOfDepartedReplicas(t *testing.T) {
	in(t, setup{config: auto}, func(w *world) {
		fault(enginesim.Fault{Kind: "fail", Count: -1})(w, w.d[0])
		w.crowd(60, 12, 0)
		fault(enginesim.Fault{Kind: "clear"})(w, w.d[0])
		time.Sleep(20 * time.Second)
		gone, back := w.d[0].addr, w.d[1].addr
		all := w.cfg
		for i := range 10 { // until the replica has received KV blocks too
			if w.crowd(60, 12, 100*(1+i)); w.count("tandem_handoff_tokens_total", gone) > 0 {
				break
			}
		}
		for _, name := range []string{
			"tandem_leg_seconds_count", "tandem_attempt_failures_total", "tandem_ejections_total",
			"tandem_engine_restarts_total", "tandem_handoff_tokens_total",
		} {
			if !slices.ContainsFunc(w.seriesNaming(gone), func(l string) bool { return strings.HasPrefix(l, name) }) {
				t.Errorf("%s has no series of the replica, so the test does not cover it", name)
			}
		}
		legs := w.count("tandem_leg_seconds_count", back)
		w.apply(without(all, gone))
		time.Sleep(w.cfg.Timeouts.Answer)
		if len(w.seriesNaming(gone)) == 0 {
			t.Error("the series were deleted while requests could still count there")
		}
		time.Sleep(2 * time.Minute)
		if left := w.seriesNaming(gone); len(left) > 0 {
			t.Errorf("%d series are left, for example %s", len(left), left[0])
		}
		if n := w.count("tandem_leg_seconds_count", back); n < legs {
			t.Errorf("the other replica has %d legs, want at least %d as before", n, legs)
		}
		w.apply(all)
		time.Sleep(10 * time.Second)
		w.crowd(60, 12, 2000).want(t, "after it came back", 0)
		if n := w.count("tandem_leg_seconds_count", gone); n == 0 {
			t.Error("the legs after its return are not counted")
		}
	})
}

// A replica that leaves and returns before its series are deleted keeps its counts, whatever its requests
// did meanwhile.
func TestSeriesOfReplicasThatComeBackGoOn(t *testing.T) {
	in(t, setup{config: auto}, func(w *world) {
		w.crowd(60, 12, 0).want(t, "before", 0)
		name, all := w.d[0].addr, w.cfg
		before := w.count("tandem_leg_seconds_count", name)
		if before == 0 {
			t.Fatal("the replica served no leg: this test shows nothing")
		}
		for range 3 {
			w.apply(without(all, name))
			time.Sleep(time.Second)
			w.apply(all)
			time.Sleep(w.cfg.Timeouts.Answer)
		}
		if n := w.count("tandem_leg_seconds_count", name); n != before {
			t.Errorf("counted %d legs, want %d as before", n, before)
		}
	})
}

// Many replica names that come and go leave no series behind.
func TestSeriesAreBoundedByWhoIsThere(t *testing.T) {
	in(t, setup{}, func(w *world) {
		lines := func() int { return strings.Count(w.get("admin", "/metrics").raw, "\n") }
		before := lines()
		all := w.cfg
		for i := range 20 {
			cfg := *all
			cfg.Pools.Decode.Replicas = slices.Clone(all.Pools.Decode.Replicas)
			cfg.Pools.Decode.Replicas[0].Name = fmt.Sprintf("pod-%d", i)
			cfg.Routers.Peers = []string{fmt.Sprintf("http://router-%d:80", i)}
			w.apply(&cfg)
			time.Sleep(time.Second)
			w.ask(chat(true))
		}
		w.apply(all)
		w.ask(chat(true))
		time.Sleep(config.Default().Timeouts.Answer + 2*time.Minute)
		for _, name := range []string{"pod-", "router-"} {
			if page := w.get("admin", "/metrics").raw; strings.Contains(page, name) {
				_, rest, _ := strings.Cut(page, name)
				t.Errorf("there is still a series of %s%.30s; the metrics have %d lines, before %d",
					name, rest, lines(), before)
			}
		}
	})
}

// A stream has no limit on its whole duration. One that ends after the series of its replica were deleted
// creates some series again, and these are deleted too.
func TestSeriesThatLongStreamsBringBack(t *testing.T) {
	var d departures
	now := time.Now()
	d.arrive([]string{"a", "b"}, now)
	d.arrive([]string{"b"}, now)
	var deleted []time.Duration
	for after := time.Minute; after < 3*24*time.Hour; after += time.Minute {
		d.forget(11*time.Minute, now.Add(after), func(name string) {
			if name != "a" {
				t.Fatalf("%s is still in use", name)
			}
			deleted = append(deleted, after)
		})
	}
	if len(deleted) < 2 || len(deleted) > 12 || deleted[0] != 11*time.Minute || deleted[1] != 22*time.Minute {
		t.Errorf("deleted after %v, want after 11 m, 22 m and 0 to 10 more times", deleted)
	}
	if last := deleted[len(deleted)-1]; last < longestStream || len(d.left) > 0 {
		t.Errorf("deleted for the last time after %v, and %d names are still remembered", last, len(d.left))
	}
}
