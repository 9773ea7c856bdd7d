package orchestrator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"tandem/internal/config"
	"tandem/internal/enginesim"
)

// weather is what happens to engines in a storm. At most half of a pool is ill at once, so that a router
// which knew the truth would cost no client anything.
type weather struct {
	w   *world
	rnd *rand.Rand

	mu   sync.Mutex
	ill  map[*simulated]bool
	away map[string]bool // addresses that the configuration leaves out
}

// illness is one kind of trouble, and how it ends.
type illness struct {
	name  string
	begin enginesim.Fault
	end   enginesim.Fault // zero: it ends by itself
}

var illnesses = []illness{
	{"500 at once", enginesim.Fault{Kind: "fail", Count: -1}, enginesim.Fault{Kind: "clear"}},
	{
		"503 of one leg",
		enginesim.Fault{Kind: "fail", Status: 503, Leg: "decode", Count: -1},
		enginesim.Fault{Kind: "clear"},
	},
	{"nothing to hand over", enginesim.Fault{Kind: "null_params", Count: -1}, enginesim.Fault{Kind: "clear"}},
	{
		"a cut path",
		enginesim.Fault{Kind: "cut_path", From: "p1.internal", For: 40 * time.Millisecond},
		enginesim.Fault{Kind: "mend_path"},
	},
	{"nothing loaded", enginesim.Fault{Kind: "no_load"}, enginesim.Fault{Kind: "mend_path"}},
	{"slow", enginesim.Fault{Kind: "slow", Factor: 20}, enginesim.Fault{Kind: "slow", Factor: 1}},
	{
		"slow metrics", enginesim.Fault{Kind: "slow_metrics", For: 3 * time.Second}, enginesim.Fault{Kind: "clear"},
	},
	{"frozen", enginesim.Fault{Kind: "freeze", For: 1500 * time.Millisecond}, enginesim.Fault{}},
	{"its core frozen", enginesim.Fault{Kind: "freeze_core", For: 1500 * time.Millisecond}, enginesim.Fault{}},
	{"restarted", enginesim.Fault{Kind: "restart", For: 700 * time.Millisecond}, enginesim.Fault{}},
	{"refusing", enginesim.Fault{Kind: "refuse", For: 900 * time.Millisecond}, enginesim.Fault{}},
	{"streams cut", enginesim.Fault{Kind: "cut_stream", After: 3, Count: 5}, enginesim.Fault{Kind: "clear"}},
	{"short leases", enginesim.Fault{Kind: "lease", For: 30 * time.Second}, enginesim.Fault{}},
	{"left by a reload", enginesim.Fault{}, enginesim.Fault{}},
}

// blow makes one engine ill for a while.
func (x *weather) blow(ctx context.Context) {
	pool := x.w.p
	if x.rnd.IntN(2) == 0 {
		pool = x.w.d
	}
	e, kind := pool[x.rnd.IntN(len(pool))], illnesses[x.rnd.IntN(len(illnesses))]
	lasts := time.Duration(300+x.rnd.IntN(4000)) * time.Millisecond
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, other := range pool {
		if x.ill[other] {
			n++
		}
	}
	if x.ill[e] || n >= len(pool)/2 {
		return
	}
	x.ill[e] = true
	x.do(e, kind.name, kind.begin)
	go func() {
		select {
		case <-time.After(lasts):
		case <-ctx.Done():
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.do(e, kind.name, kind.end)
		delete(x.ill, e)
	}()
}

// do needs mu.
func (x *weather) do(e *simulated, name string, f enginesim.Fault) {
	if name == "left by a reload" {
		x.away[e.addr] = !x.away[e.addr]
		x.reload()
		return
	}
	if f.Kind == "" {
		return
	}
	if err := e.Fault(f); err != nil {
		x.w.t.Errorf("%s: %s: %v", e.name, name, err)
	}
}

// reload applies the configuration without those that are away. It needs mu.
func (x *weather) reload() {
	cfg := *x.w.cfg
	here := func(rs []config.Replica) []config.Replica {
		return slices.DeleteFunc(slices.Clone(rs),
			func(r config.Replica) bool { return x.away[r.URL[len("http://"):]] })
	}
	cfg.Pools.Prefill.Replicas, cfg.Pools.Decode.Replicas = here(
		cfg.Pools.Prefill.Replicas,
	), here(cfg.Pools.Decode.Replicas)
	if err := x.w.o.Apply(&cfg); err != nil {
		x.w.t.Error(err)
	}
}

// Ten thousand requests while engines die, freeze, restart, leave and come, answer 500, hand nothing over,
// load nothing, are cut off or slow, and while clients leave: no wrong answer, nothing left behind, and
// hardly an error that a router which knew the truth would have avoided.
func TestStorm(t *testing.T) {
	requests := 10_000
	if testing.Short() {
		requests = 1500
	}
	s := setup{prefill: 4, decode: 4, config: func(c *config.Config) {
		c.Local = config.LocalAuto
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		c.Timeouts.Probe = time.Second
	}}
	in(t, s, func(w *world) {
		ctx, calm := context.WithCancel(w.t.Context())
		x := &weather{w: w, rnd: rand.New(rand.NewPCG(1, 2)), ill: map[*simulated]bool{}, away: map[string]bool{}}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ctx.Err() == nil {
				time.Sleep(400 * time.Millisecond)
				x.blow(ctx)
			}
		}()
		var got tally
		kinds := map[string]int{}
		var mu sync.Mutex
		var clients sync.WaitGroup
		rnd := rand.New(rand.NewPCG(3, 4))
		right := map[int]*heard{}
		for i := range requests {
			time.Sleep(time.Duration(rnd.ExpFloat64() * float64(25*time.Millisecond)))
			n, leaves := rnd.IntN(200), rnd.IntN(20) == 0
			stay := time.Duration(1+rnd.IntN(200)) * time.Millisecond
			p := nthChat(n, i%2 == 0)
			if right[n] == nil {
				right[n] = w.right(p)
			}
			want := right[n]
			clients.Go(func() {
				pending := w.begin(p)
				if leaves {
					time.Sleep(stay)
					pending.leave()
					pending.end()
					return
				}
				h := pending.end()
				got.take(h, want)
				if h.status != 200 || h.err != nil || h.fail.Message != "" {
					mu.Lock()
					kinds[fmt.Sprintf("%d %s", h.status, h.fail.Message)]++
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		calm()
		<-over
		t.Logf("%d requests: %d errors, %d wrong answers, %d took more than a second; an ideal router has 0 "+
			"errors. Errors: %v",
			requests, got.bad, got.wrong, got.longer, kinds)
		got.want(t, "storm", requests/1000)
		time.Sleep(time.Minute) // what is frozen goes on, who left is back
	})
}
