package orchestrator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/waitline"
)

// guests are requests at an admission queue with room for one at a time. Each keeps its room for a second.
type guests struct {
	t      *testing.T
	a      *admission
	free   bool
	served []string
	failed map[string]error
}

// come sends a request of an order, and returns when the request waits or has room. within is the request's
// goal, 0 for none.
func (g *guests) come(name string, order waitline.Order, within time.Duration) {
	e := entry{patience: time.Hour, claim: claim{order: order}}
	if within > 0 {
		e.due = time.Now().Add(within)
	}
	e.try = func() outcome {
		if !g.free {
			return outcome{verdict: waitsInLine}
		}
		g.free = false
		return outcome{verdict: goesOn, cost: 1}
	}
	go func() {
		if err := g.a.enter(g.t.Context(), e); err != nil {
			g.failed[name] = err
			return
		}
		g.served = append(g.served, name)
		time.Sleep(time.Second)
		g.free = true
		g.a.wake()
	}()
	synctest.Wait()
}

func visit(t *testing.T, limit int, play func(g *guests)) *guests {
	g := &guests{t: t, free: true, failed: map[string]error{}}
	synctest.Test(t, func(t *testing.T) {
		g.a = newAdmission(limit)
		g.t = t
		play(g)
		time.Sleep(time.Hour - time.Minute)
		synctest.Wait()
	})
	return g
}

// Requests find room by class, then by goals that can be kept, then by the shares of tenants.
func TestTheQueueKeepsClassesGoalsAndShares(t *testing.T) {
	g := visit(t, 100, func(g *guests) {
		g.come("runs", waitline.Order{}, 0)
		g.come("bulk", waitline.Order{Rank: 2}, 0)
		g.come("a1", waitline.Order{Rank: 1, Tenant: 1}, time.Minute)
		g.come("a2", waitline.Order{Rank: 1, Tenant: 1}, time.Minute)
		g.come("lost", waitline.Order{Rank: 1, Tenant: 2}, time.Millisecond)
		g.come("b1", waitline.Order{Rank: 1, Tenant: 2}, 2*time.Minute)
		g.come("a3, urgent", waitline.Order{Rank: 1, Tenant: 1}, 30*time.Second)
	})
	want := []string{"runs", "a3, urgent", "b1", "a1", "a2", "lost", "bulk"}
	if !slices.Equal(g.served, want) || len(g.failed) > 0 {
		t.Errorf("served are %q, want %q; failed %v", g.served, want, g.failed)
	}
}

// In a full queue a request of a better class takes the place of a request of the last class. The displaced
// request gets 429.
func TestABetterClassDisplacesWhatWaits(t *testing.T) {
	g := visit(t, 2, func(g *guests) {
		g.come("runs", waitline.Order{}, 0)
		g.come("first", waitline.Order{Rank: 2}, 0)
		g.come("second", waitline.Order{Rank: 2}, 0)
		g.come("third", waitline.Order{Rank: 2}, 0)
		g.come("better", waitline.Order{Rank: 1}, 0)
	})
	if want := []string{"runs", "better", "first"}; !slices.Equal(g.served, want) {
		t.Errorf("served are %q, want %q", g.served, want)
	}
	second, third := g.failed["second"], g.failed["third"]
	if len(g.failed) != 2 || !errors.Is(second, errQueueFull) || !errors.Is(third, errQueueFull) {
		t.Errorf("failed are %v", g.failed)
	}
}

// Shares are kept with classes or weights alone, for each tenant.
func TestWeightsOfTenants(t *testing.T) {
	c := config.Default()
	teams(c)
	c.Keys = append(c.Keys, config.Key{Name: "team-b2", Tenant: "b", Secret: config.Secret{Value: "hush-b2"}})
	weight := func(secret string) float64 { return keyTable(c, nil).Find(secret).Weight }
	if weight("hush-a") != 0 {
		t.Error("shares are kept without classes and weights")
	}
	c.Keys[1].Weight = 3
	if weight("hush-a") != 1 || weight("hush-b") != 3 || weight("hush-b2") != 3 {
		t.Errorf("weights %v, %v, %v", weight("hush-a"), weight("hush-b"), weight("hush-b2"))
	}
	c.Keys[1].Weight = 0
	if classed(c); weight("hush-a") != 1 || weight("hush-b") != 1 {
		t.Error("no shares are kept with classes")
	}
}

// A request whose client has left keeps no other request from room.
func TestAClientLeavesAQueueOfClasses(t *testing.T) {
	g := visit(t, 10, func(g *guests) {
		g.come("runs", waitline.Order{}, 0)
		ctx, leave := context.WithCancel(g.t.Context())
		go g.a.enter(ctx, entry{
			patience: time.Hour, claim: claim{order: waitline.Order{Rank: 1, Tenant: 1}},
			try: func() outcome { return outcome{} },
		})
		synctest.Wait()
		g.come("bulk", waitline.Order{Rank: 2, Tenant: 1}, 0)
		leave()
	})
	if want := []string{"runs", "bulk"}; !slices.Equal(g.served, want) {
		t.Errorf("served are %q, want %q", g.served, want)
	}
}
