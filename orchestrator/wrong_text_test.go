package orchestrator

import (
	"net/http"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// A canary of a pair returned a wrong text. No request uses that pair, even if no other is left: a clear
// error is better than a wrong answer. If local prefill is allowed, the decode replica computes the
// prompt. The pair returns after a successful canary.
func TestAPairThatGivesWrongTextIsNeverUsed(t *testing.T) {
	for _, tt := range []struct {
		name, local string
		prefills    int
		bad         int // of 30 requests
	}{
		{"the only pair", config.LocalNever, 1, 30},
		{"all pairs of a decode replica", config.LocalNever, 2, 30},
		{"with local prefills", config.LocalAuto, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, setup{prefill: tt.prefills, decode: 1}, func(w *world) { // all requests are split first
				w.comesBackWrong(w.p, w.d[0])
				cfg := *w.cfg
				cfg.Local = tt.local
				w.apply(&cfg)
				got := w.crowd(30, 4, 100)
				got.want(t, "30 chats", tt.bad)
				if got.bad != tt.bad {
					t.Errorf("%d of 30 chats got an error, want %d", got.bad, tt.bad)
				}
				if p := nthChat(1000, false); tt.bad > 0 {
					w.failed(p, w.ask(p), http.StatusServiceUnavailable)
				}
				fault(enginesim.Fault{Kind: "mend_path"})(w, w.d[0])
				time.Sleep(10 * time.Second)
				w.apply(w.cfg)
				w.crowd(30, 4, 200).want(t, "30 chats when the paths are well", 0)
			})
		})
	}
}

// comesBackWrong cuts the paths from all of ps to d until the router has ejected the pairs. Then the paths
// deliver wrong blocks, until canaries have shown it.
func (w *world) comesBackWrong(ps []*simulated, d *simulated) {
	w.t.Helper()
	out := func(p *simulated) bool {
		return w.o.planner.Outliers().PairOut(
			outlier.Pair{Prefill: replica.ID(p.addr), Decode: replica.ID(d.addr)})
	}
	for _, p := range ps {
		fault(enginesim.Fault{Kind: "cut_path", From: p.name + ".internal", For: 20 * time.Millisecond})(w, d)
	}
	for i, p := range ps {
		for n := 0; !out(p); n++ {
			if n == 100 {
				w.t.Fatalf("the path from %s is cut but still in use", p.name)
			}
			w.ask(nthChat(10_000+100*i+n, false))
		}
	}
	for _, p := range ps {
		fault(enginesim.Fault{Kind: "wrong_load", From: p.side})(w, d)
		fault(enginesim.Fault{Kind: "mend_path", From: p.name + ".internal"})(w, d)
	}
	time.Sleep(6 * time.Second) // a pair gets a trial every 5 s
	for _, p := range ps {
		if !out(p) {
			w.t.Fatalf("the path from %s delivers wrong blocks but is in use", p.name)
		}
	}
}
