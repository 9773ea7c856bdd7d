package orchestrator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// longStream is a request with an answer that takes about 80 s on engines with steps of 0.5 s.
func longStream(model string) prompt {
	p := adapted(completion(true), model)
	p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":160`, 1)
	return p
}

// underWay sends p, and returns when the answer has begun.
func (w *world) underWay(p prompt) (ended chan *heard) {
	began := make(chan bool, 1)
	ended = make(chan *heard, 1)
	go func() {
		ended <- w.ask(p, func(n int) {
			if n == 3 {
				began <- true
			}
		})
	}()
	<-began
	return ended
}

// restartIdle restarts the decode engine that does not compute the newest answer, and waits until the
// router has noticed.
func (w *world) restartIdle() {
	made := w.posts(false)
	for _, d := range w.d {
		if d.name != made[len(made)-1].engine {
			fault(enginesim.Fault{Kind: "restart"})(w, d)
		}
	}
	time.Sleep(2 * w.cfg.Pools.Decode.PollInterval)
}

// A computation began, and then an adapter or an engine that its answer depends on was replaced. No later
// request joins that computation, and its answer is not kept. This holds even if the same path has its
// former weights again.
func TestComputationBeforeABreakIsNotJoined(t *testing.T) {
	const path = "/adapters/ad"
	long := func(c *config.Config) { c.Timeouts.DecodeIdle, c.Timeouts.Answer = time.Minute, 10*time.Minute }
	engines := func(w *world) []*simulated { return append(slices.Clone(w.p), append(w.d, w.whole)...) }
	for name, tt := range map[string]struct {
		model   string
		change  func(w *world)
		outlive bool
		want    string // X-Cache of the second request: HIT if it joins the first
	}{
		"nothing changes": {model: "ad", change: func(*world) { time.Sleep(10 * time.Second) }, want: "HIT"},
		"an adapter is exchanged and comes back": {model: "ad", change: func(w *world) {
			w.swap("/adapters/ad-2", engines(w)...)
			w.swap(path, engines(w)...)
		}, want: "MISS"},
		"the same, for a request to the base model": {model: "sim", change: func(w *world) {
			w.swap("/adapters/ad-2", engines(w)...)
			w.swap(path, engines(w)...)
		}, want: "HIT"},
		"an adapter is exchanged, and answers outlive engines": {model: "ad", change: func(w *world) {
			w.swap("/adapters/ad-2", engines(w)...)
			w.swap(path, engines(w)...)
		}, outlive: true, want: "MISS"},
		"an engine is another process": {model: "sim", change: func(w *world) { w.restartIdle() }, want: "MISS"},
		"an engine is another process, and answers outlive engines": {
			model: "sim", change: func(w *world) { w.restartIdle() }, outlive: true, want: "HIT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := remembering(long, func(c *config.Config) { c.AnswerCache.OutliveEngines = tt.outlive })
			s.engine = func(_ string, o *enginesim.Options) {
				o.Adapters, o.Core.Cost.D0 = []string{"ad=" + path}, 0.5
			}
			in(t, s, func(w *world) {
				p := longStream(tt.model)
				first := w.underWay(p)
				tt.change(w)
				select {
				case <-first:
					t.Fatal("the first request ended before another could join it")
				default:
				}
				second := w.underWay(p)
				want, begun := w.right(p).text, <-first
				third := w.ask(p) // the second still runs, unless it joined the first
				got := <-second
				if how := got.header.Get("X-Cache"); how != tt.want {
					t.Errorf("X-Cache %q, want %q", how, tt.want)
				}
				if third.header.Get("X-Cache") != "HIT" || third.events[0] != got.events[0] {
					t.Error("the third request did not get the second one's answer")
				}
				for who, h := range map[string]*heard{"the first": begun, "the second": got, "the third": third} {
					if h.status != 200 || h.text != want || h.dones != 1 {
						t.Errorf("%s got status %d and %d bytes, want 200 and the engines' %d bytes",
							who, h.status, len(h.text), len(want))
					}
				}
			})
		})
	}
}
