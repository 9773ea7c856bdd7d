package orchestrator

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// fails records a server error of a decode leg, without a request, and returns the state change.
func (w *world) fails(id replica.ID) []outlier.Change {
	a := w.o.planner.Outliers().Begin(id, outlier.Decode, time.Now())
	defer a.End()
	return a.Bad(outlier.Failure{Kind: outlier.ServerError}, time.Now())
}

// nobodyTries keeps the router from sending trials during the test.
func nobodyTries(c *config.Config) {
	atOnce(c)
	c.Health.Ejection.Base, c.Health.Ejection.Max = time.Minute, time.Hour
}

// Two changes of a replica's state are announced in reverse order. The announced state is still the true
// one.
func TestChangesAnnouncedInReverseEndInTheTruth(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{config: nobodyTries, options: logsTo(&log)}, func(w *world) {
		id, set := replica.ID(w.d[0].addr), w.o.planner.Outliers()
		first := w.fails(id)
		used := set.Begin(id, outlier.Decode, time.Now())
		second := used.Good(time.Now()) // the ejected replica served a request all the same, and becomes half-open
		used.End()
		w.o.trials.Announce(second)
		w.o.trials.Announce(first)
		if states := w.o.fleet.Endpoint(id).States(id); len(states) != 1 ||
			states[0].State != fleet.StateHalfDecode {
			t.Errorf("%s has the states %v, want half-open", id, states)
		}
		if n := w.count("tandem_ejections_total", ""); n != 1 {
			t.Errorf("counted %d ejections, want 1", n)
		}

		pair := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[1].addr)}
		set.NotLoaded(pair, outlier.Failure{Kind: outlier.LoadFail}, time.Now())
		out := set.NotLoaded(pair, outlier.Failure{Kind: outlier.LoadFail}, time.Now())
		back := set.ExcuseLoad(pair, outlier.LoadFail, true, time.Now(), time.Now())
		w.o.trials.Announce(back)
		w.o.trials.Announce(out)
		if n := w.count("tandem_pair_ejections_total", ""); n != 1 {
			t.Errorf("counted %d ejections of pairs, want 1", n)
		}
	})
	if strings.LastIndex(log.String(), "pair is ejected") > strings.LastIndex(log.String(), "pair is back") {
		t.Errorf("the log says last that the pair is ejected, but it is back:\n%s", log.String())
	}
}

// The same with many announcements at once.
func TestChangesOfManyEndInTheTruth(t *testing.T) {
	in(t, setup{config: nobodyTries}, func(w *world) {
		id, set := replica.ID(w.d[0].addr), w.o.planner.Outliers()
		for range 50 {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					a := set.Begin(id, outlier.Decode, time.Now())
					defer a.End()
					if i%2 == 0 {
						w.o.trials.Announce(a.Good(time.Now()))
						return
					}
					w.o.trials.Announce(a.Bad(outlier.Failure{Kind: outlier.ServerError}, time.Now()))
				})
			}
			all.Wait()
			now := set.Now(outlier.Change{ID: id, Leg: outlier.Decode}).To
			to := w.o.fleet.Endpoint(id)
			if hasState(to, id, fleet.StateEjectedDecode) != (now == outlier.Ejected) ||
				hasState(to, id, fleet.StateHalfDecode) != (now == outlier.HalfOpen) {
				t.Fatalf("%s is %v, but its announced states are %v", id, now, to.States(id))
			}
		}
	})
}

// An engine that may have cached wrong blocks several times is logged once.
func TestADistrustedEngineIsAnnouncedOnce(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{options: logsTo(&log)}, func(w *world) {
		to := w.o.fleet.Endpoint(replica.ID(w.d[0].addr))
		for range 5 {
			to.Distrust(to.CacheEpoch(), refuse(kindLate, site{phase: "decode", err: errors.New("late")}))
		}
		if n := w.count("tandem_decode_distrusted_total", w.d[0].addr); n != 5 {
			t.Errorf("counted %d times, want 5", n)
		}
		if epoch := to.CacheEpoch(); epoch != 5 {
			t.Errorf("epoch %d, want 5: blocks cached since the last time would match again", epoch)
		}
	})
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d log lines are errors, want 1:\n%s", n, log.String())
	}
}
