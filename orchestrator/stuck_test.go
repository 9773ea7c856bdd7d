package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// usualPatience sets the default timeouts.
func usualPatience(c *config.Config) {
	c.Timeouts.Prefill = 5 * time.Minute
	c.Timeouts.DecodeFirst = 2 * time.Minute
	c.Timeouts.Answer = 30 * time.Minute
}

// All packets between two engines are lost. Nothing fails: a transfer waits as long as TCP does, both
// engines answer other requests, and the lease expires meanwhile. No client waits for that, the pair is
// ejected, and it returns soon after the next trial.
func TestAPathOnWhichPacketsVanish(t *testing.T) {
	s := setup{prefill: 2, decode: 2, config: func(c *config.Config) {
		usualPatience(c)
		c.Local = config.LocalAuto
		c.Scoring.DecodePenalty = 10 // otherwise prompts as short as these are not split
		c.Health.Ejection.Max = 20 * time.Second
	}}
	in(t, s, func(w *world) {
		w.crowd(40, 8, 5000).want(t, "40 chats before", 0)
		fault(enginesim.Fault{Kind: "hold_path", From: "p0.internal"})(w, w.d[0])
		cut := outlier.Pair{Prefill: replica.ID(w.p[0].addr), Decode: replica.ID(w.d[0].addr)}
		began := time.Now()
		w.crowd(400, 8, 0).want(t, "400 chats while packets vanish", 0)
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("400 chats took %v, want at most 40 s", took)
		}
		if !w.o.planner.Outliers().PairOut(cut) {
			t.Error("the pair is still in use")
		}
		if n := w.count("tandem_pair_ejected", w.d[0].addr); n != 1 {
			t.Errorf("the metrics show %d ejected pairs of the decode replica, want 1", n)
		}
		if shown := w.o.State().Status().Pairs; len(shown) != 1 || *shown[0].Pair != cut ||
			shown[0].State != outlier.Ejected {
			t.Errorf("/debug/replicas shows %+v", shown)
		}
		for _, st := range w.o.planner.Outliers().Status(time.Now()) {
			if st.State != outlier.InUse && (st.Pair == nil || *st.Pair != cut) {
				t.Errorf("also blamed: %+v %+v", st, st.Pair)
			}
		}
		time.Sleep(time.Minute)
		fault(enginesim.Fault{Kind: "mend_path"})(w, w.d[0])
		mended := time.Now()
		for w.o.planner.Outliers().PairOut(cut) && time.Since(mended) < 5*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(mended); took > 30*time.Second {
			t.Errorf("the pair was back after %v, want at most 30s: a trial every 20s, and 10s more", took)
		}
		w.crowd(200, 8, 2000).want(t, "200 chats after that", 0)
	})
}

// A decode leg that waits long for another reason than its blocks is not aborted: a trial of its pair
// succeeds.
func TestLongAnswersAreNotStuck(t *testing.T) {
	in(t, setup{prefill: 1, decode: 1, config: usualPatience}, func(w *world) {
		fault(enginesim.Fault{Kind: "slow", Factor: 100})(w, w.d[0])
		w.crowd(4, 4, 0).want(t, "4 chats at a decode engine that is slow", 0)
		if n := w.count("tandem_retries_total", ""); n != 0 {
			t.Errorf("%d requests were retried, want 0", n)
		}
		if n := w.count("tandem_pair_ejections_total", ""); n != 0 {
			t.Errorf("the pair was ejected %d times, want 0", n)
		}
	})
}
