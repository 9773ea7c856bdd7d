package orchestrator

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
)

// beside starts a second router for the same engines, at front-b and admin-b, and returns when its
// replicas have joined.
func (w *world) beside() (o *Orchestrator, stop func()) {
	w.t.Helper()
	o, err := New(w.cfg, Options{Dial: w.dial, NoEvents: true, Seed: 2})
	if err != nil {
		w.t.Fatal(err)
	}
	listeners := w.listen("front-b:80", "admin-b:80")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Serve(ctx, listeners, o.Admin()) }()
	time.Sleep(time.Second)
	if !o.Ready() {
		w.t.Fatal("the second router is not ready")
	}
	return o, func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the second router: %v", err)
		}
	}
}

// askBeside sends a request to the second router.
func (w *world) askBeside(p prompt) *pending {
	out := &pending{heard: make(chan *heard, 1)}
	go func() { out.heard <- w.send(w.t.Context(), "front-b:80", p) }()
	return out
}

// decoding returns how many requests each replica decodes: for o itself, and for other routers as o has
// heard.
func decoding(o *Orchestrator) (ours, elsewhere map[replica.ID]int) {
	ours, elsewhere = map[replica.ID]int{}, map[replica.ID]int{}
	for _, s := range o.decode.Status(time.Now()) {
		if s.Sequences > 0 {
			ours[s.ID] = s.Sequences
		}
		if s.Remote.Sequences > 0 {
			elsewhere[s.ID] = s.Remote.Sequences
		}
	}
	return ours, elsewhere
}

// crowded is the setup of two routers that know each other, and of decode replicas with room for one
// request each. A request takes about 2.5 s.
func crowded() setup {
	return setup{
		config: func(c *config.Config) {
			c.Routers.Peers = []string{"http://admin:80", "http://admin-b:80"}
			c.Scoring.ExpectedOutput = fullForLong
			// So rare that no load report arrives during the test.
			c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = 20*time.Second, 20*time.Second
		},
		engine: func(name string, o *enginesim.Options) {
			if name[0] == 'd' {
				o.Core.Blocks = 30
				o.Core.Cost.D0 = 0.2
			}
		},
	}
}

// Two routers for the same engines do not book the same room.
func TestRoutersSeeEachOther(t *testing.T) {
	in(t, crowded(), func(w *world) {
		b, stop := w.beside()
		defer stop()
		one := w.begin(chat(true))
		time.Sleep(250 * time.Millisecond)
		ours, _ := decoding(w.o)
		_, reported := decoding(b)
		if len(ours) != 1 || !maps.Equal(ours, reported) {
			t.Errorf("a decodes %v, b has heard of %v", ours, reported)
		}
		two := w.askBeside(chat(true))
		time.Sleep(250 * time.Millisecond)
		theirs, _ := decoding(b)
		for id := range theirs {
			if ours[id] != 0 {
				t.Errorf("b booked room on %s that a had booked", id)
			}
		}
		if _, reported := decoding(w.o); len(theirs) != 1 || !maps.Equal(theirs, reported) {
			t.Errorf("b decodes %v, a has heard of %v", theirs, reported)
		}
		three := w.askBeside(chat(true))
		time.Sleep(250 * time.Millisecond)
		if n := b.queue.length(); n != 1 {
			t.Errorf("%d requests wait at b, want 1: a and b have booked all room", n)
		}
		ended := one.end()
		time.Sleep(200 * time.Millisecond) // b hears of it, and prefills while its first request still runs
		if now, _ := decoding(b); len(now) != 2 || b.queue.length() != 0 {
			t.Errorf("after the end of a's request, b decodes %v and %d requests wait; want 2 and 0",
				now, b.queue.length())
		}
		w.exact(chat(true), ended)
		w.exact(chat(true), two.end())
		w.exact(chat(true), three.end())
	})
}

// The bookings of a router that cannot be reached are forgotten, even if it still runs.
func TestARouterThatDiedIsForgotten(t *testing.T) {
	in(t, crowded(), func(w *world) {
		b, stop := w.beside()
		defer stop()
		one := w.begin(chat(true))
		time.Sleep(250 * time.Millisecond)
		if _, reported := decoding(b); len(reported) != 1 {
			t.Errorf("b has heard of %v", reported)
		}
		w.net.Refuse("admin:80", true)
		w.net.Cut("admin:80")
		time.Sleep(time.Second)
		ours, _ := decoding(w.o)
		if _, reported := decoding(b); len(ours) != 1 || len(reported) != 0 {
			t.Errorf("a decodes %v and was unreachable for 1 s; b still counts %v, want none", ours, reported)
		}
		w.net.Refuse("admin:80", false)
		time.Sleep(250 * time.Millisecond)
		if _, reported := decoding(b); !maps.Equal(ours, reported) {
			t.Errorf("a decodes %v and is reachable again; b has heard of %v", ours, reported)
		}
		w.exact(chat(true), one.end())
	})
}

// A reload adds and removes routers.
func TestReloadOfRouters(t *testing.T) {
	in(t, crowded(), func(w *world) {
		b, stop := w.beside()
		defer stop()
		one := w.begin(chat(true))
		time.Sleep(250 * time.Millisecond)
		alone := *w.cfg
		alone.Routers.Peers = nil
		for _, x := range []struct {
			cfg  *config.Config
			want int
		}{{&alone, 0}, {w.cfg, 1}} {
			if err := b.Apply(x.cfg); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			if _, reported := decoding(b); len(reported) != x.want {
				t.Errorf("with peers %v, b has heard of %v, want %d", x.cfg.Routers.Peers, reported, x.want)
			}
		}
		w.exact(chat(true), one.end())
	})
}
