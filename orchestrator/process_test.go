package orchestrator

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// poisoned makes w's decode engine cache wrong blocks, which the router notices. It returns the prompt
// whose answer from these blocks is wrong.
func poisoned(w *world) prompt {
	p := guardedPrompt(idPrompt(1, 100), "")
	coreStands(w)
	w.exact(p, w.ask(p))
	if plain := w.send(w.t.Context(), w.d[0].addr, p); plain.text == w.right(p).text {
		w.t.Error("the decode engine's cache is not poisoned: this test shows nothing")
	}
	return p
}

// dialer opens connections to engines.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// aliased gives the first decode engine a second address.
func aliased(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "alias.internal:8000" {
			addr = "d0.internal:8000"
		}
		return dial(ctx, network, addr)
	}
}

// Wrong cached blocks are a fact about an engine's process. The router remembers them through reloads, and
// when the replica leaves and returns under any name.
func TestDistrustOutlivesReloads(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world, c *config.Config)
	}{
		{"another interval", func(_ *world, c *config.Config) { c.Pools.Decode.PollInterval += time.Second }},
		{"another interval, alone", func(_ *world, c *config.Config) {
			c.Pools.Decode.PollInterval += time.Second
			c.Local = config.LocalAlways
		}},
		{"another key and name", func(_ *world, c *config.Config) {
			c.Pools.Decode.APIKey = config.Secret{Value: "k"}
			c.Pools.Decode.Replicas = []config.Replica{{Name: "new", URL: c.Pools.Decode.Replicas[0].URL}}
		}},
		{"it leaves and comes back", func(w *world, c *config.Config) {
			w.apply(without(c, w.d[0].addr))
			time.Sleep(20 * time.Second)
		}},
		{"it comes back by another address", func(w *world, c *config.Config) {
			w.apply(without(c, w.d[0].addr))
			time.Sleep(20 * time.Second)
			c.Pools.Decode.Replicas = []config.Replica{{URL: "http://alias.internal:8000"}}
		}},
		{"it serves in both pools", func(w *world, c *config.Config) {
			shared := config.Replica{URL: w.d[0].URL(), Shared: true}
			c.Pools.Decode.Replicas, c.Local = []config.Replica{shared}, config.LocalAlways
			c.Pools.Prefill.Replicas = []config.Replica{shared}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := slowPair(30 * time.Second)
			s.options = func(o *Options) { o.Dial = aliased(o.Dial) }
			in(t, s, func(w *world) {
				p := poisoned(w)
				cfg := *w.cfg
				tt.change(w, &cfg)
				w.apply(&cfg)
				time.Sleep(5 * time.Second)
				for range 2 {
					w.exact(p, w.ask(p))
				}
			})
		})
	}
}

// A replica that returns with a new process is trusted again, even if the router did not see the restart.
func TestDistrustEndsWithTheProcess(t *testing.T) {
	in(t, slowPair(30*time.Second), func(w *world) {
		p := poisoned(w)
		w.apply(without(w.cfg, w.d[0].addr))
		fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, w.d[0])
		time.Sleep(20 * time.Second)
		w.apply(w.cfg)
		time.Sleep(5 * time.Second)
		if epoch := w.o.fleet.Watchers()[1].CacheEpoch(); epoch != 0 {
			w.t.Errorf("epoch %d after a restart of the engine, want 0", epoch)
		}
		w.exact(p, w.ask(p))
	})
}
