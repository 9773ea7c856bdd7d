package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/internal/answercache/valkey"
	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// storeInTrouble is a shared store of answers, with the means to disturb it.
type storeInTrouble struct {
	t      *testing.T
	server *valkeytest.Server
	dialed string // the address in the configuration
	master string // the name of the server for sentinels; "" without sentinels
	link   *valkeytest.SlowLink
}

// storeTrouble is one kind of outage of the shared store.
type storeTrouble struct {
	name       string
	store      func(t *testing.T) *storeInTrouble // nil: a single server
	begin, end func(x *storeInTrouble)            // end nil: the trouble is over at once
	gives      bool                               // the store still serves its answers meanwhile
	// the router stops asking the store meanwhile, except once a second
	down bool
}

func storeAlone(t *testing.T) *storeInTrouble {
	s := valkeytest.Start(t)
	return &storeInTrouble{t: t, server: s, dialed: s.Addr}
}

func overASlowLink(t *testing.T) *storeInTrouble {
	x := storeAlone(t)
	x.link = valkeytest.NewSlowLink(t, x.server.Addr)
	x.dialed = x.link.Addr
	return x
}

func watchedOver(t *testing.T) *storeInTrouble {
	master, _, sentinel := valkeytest.StartWatched(t, "answers")
	return &storeInTrouble{t: t, server: master, dialed: sentinel.Addr, master: "answers"}
}

// says sends the server an operator's command.
func (x *storeInTrouble) says(args ...any) {
	x.t.Helper()
	raw := redis.NewClient(&redis.Options{Addr: x.server.Addr, MaxRetries: -1})
	defer raw.Close()
	if err := raw.Do(context.Background(), args...).Err(); err != nil {
		x.t.Fatal(err)
	}
}

// poison replaces each stored answer by the answer of another request, or by text that is no answer.
func (x *storeInTrouble) poison() {
	x.t.Helper()
	raw := redis.NewClient(&redis.Options{Addr: x.server.Addr})
	defer raw.Close()
	ctx := context.Background()
	names := raw.Keys(ctx, "*").Val()
	slices.Sort(names)
	first := raw.Get(ctx, names[0]).Val()
	for i, name := range names {
		value := first
		if i+1 < len(names) {
			value = raw.Get(ctx, names[i+1]).Val()
		}
		if i%3 == 2 {
			value = strings.Repeat("no answer ", 1+i)
		}
		if err := raw.Set(ctx, name, value, 0).Err(); err != nil {
			x.t.Fatal(err)
		}
	}
}

var storeTroubles = []storeTrouble{
	{name: "nothing", gives: true, begin: func(*storeInTrouble) {}},
	{
		name: "killed", down: true,
		begin: func(x *storeInTrouble) { x.server.Kill() }, end: func(x *storeInTrouble) { x.server.Restart() },
	},
	{name: "restarted", begin: func(x *storeInTrouble) { x.server.Kill(); x.server.Restart() }},
	{
		name: "frozen", down: true,
		begin: func(x *storeInTrouble) { x.server.Freeze() }, end: func(x *storeInTrouble) { x.server.Unfreeze() },
	},
	{
		name: "slow", store: overASlowLink, down: true,
		begin: func(x *storeInTrouble) { x.link.Delay(200 * time.Millisecond) },
		end:   func(x *storeInTrouble) { x.link.Delay(0) },
	},
	{
		name: "full", gives: true,
		begin: func(x *storeInTrouble) { x.says("CONFIG", "SET", "maxmemory", "1") },
		end:   func(x *storeInTrouble) { x.says("CONFIG", "SET", "maxmemory", "0") },
	},
	{name: "flushed", begin: func(x *storeInTrouble) { x.says("FLUSHALL") }},
	{name: "failing over", store: watchedOver, begin: func(x *storeInTrouble) { x.server.Kill() }},
	{
		name: "wrong password", down: true,
		begin: func(x *storeInTrouble) {
			x.says("CONFIG", "SET", "requirepass", "another")
			x.drops()
		},
		end: func(x *storeInTrouble) { x.unlock() },
	},
	{name: "poisoned", begin: func(x *storeInTrouble) { x.poison() }},
}

// drops closes the connections that were authenticated before.
func (x *storeInTrouble) drops() {
	x.t.Helper()
	raw := redis.NewClient(&redis.Options{Addr: x.server.Addr, Password: "another"})
	defer raw.Close()
	if err := raw.Do(context.Background(), "CLIENT", "KILL", "SKIPME", "yes").Err(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *storeInTrouble) unlock() {
	x.t.Helper()
	raw := redis.NewClient(&redis.Options{Addr: x.server.Addr, Password: "another"})
	defer raw.Close()
	if err := raw.ConfigSet(context.Background(), "requirepass", "").Err(); err != nil {
		x.t.Fatal(err)
	}
}

// The questions of one round, and the rounds asked during the trouble.
const (
	outageQuestions = 24
	outageRounds    = 4
)

// lookers is a world with a shared store, and with engines that take no time. Only the store can be slow.
func lookers(t *testing.T, x *storeInTrouble) *world {
	t.Helper()
	s := remembering(func(c *config.Config) {
		c.AnswerCache.Valkey.Addresses = []string{x.dialed}
		if x.master != "" {
			c.AnswerCache.Valkey.Mode, c.AnswerCache.Valkey.Master = "sentinel", x.master
		}
		c.AnswerCache.Valkey.Secret = config.Secret{Value: strings.Repeat("s", 40)}
	})
	s.engine = func(_ string, o *enginesim.Options) { o.ZeroLatency = true }
	w := newWorld(t, s)
	t.Cleanup(w.close)
	return w
}

// askedAll is the result of some rounds of questions. The router's memory is emptied before each round.
type askedAll struct {
	took  []time.Duration
	given int // from the store
}

func (w *world) askAll(rounds int) (r askedAll) {
	w.t.Helper()
	for range rounds {
		w.forget()
		for i := range outageQuestions {
			p := chat(i%2 == 0)
			p.body = strings.Replace(p.body, `"max_tokens":12`, fmt.Sprintf(`"max_tokens":%d`, 12+i), 1)
			got := w.ask(p)
			w.exact(p, got)
			r.took = append(r.took, got.took)
			if got.header.Get("X-Cache") == "HIT" {
				r.given++
			}
		}
	}
	return r
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func total(d []time.Duration) (sum time.Duration) {
	for _, one := range d {
		sum += one
	}
	return sum
}

// Whatever happens to the shared store, every request gets its exact answer, and not much later. After the
// trouble, routers share answers again. With -v the test prints a table.
func TestTroublesOfTheSharedStoreCostNoAnswers(t *testing.T) {
	for _, trouble := range storeTroubles {
		t.Run(trouble.name, func(t *testing.T) {
			store := trouble.store
			if store == nil {
				store = storeAlone
			}
			x := store(t)
			w := lookers(t, x)
			computed := w.askAll(1)
			before := w.askAll(1)
			// On a loaded machine, lookups exceed the budget. The router then leaves the store alone for a while.
			for end := time.Now().Add(time.Minute); before.given == 0 && time.Now().Before(end); {
				before = w.askAll(1)
			}
			if before.given == 0 {
				t.Fatal("no answer came from the store before the trouble: the test shows nothing")
			}
			down := w.looked(valkey.Down)
			trouble.begin(x)
			r := w.askAll(outageRounds)
			// On a loaded machine some lookups exceed the budget.
			if trouble.gives && r.given == 0 || trouble.down && r.given > 0 {
				t.Errorf("%d of %d answers came from the store", r.given, len(r.took))
			}
			if trouble.down && w.looked(valkey.Down) == down {
				t.Error("the router never stopped asking the server")
			}
			if slowest := slices.Max(r.took); slowest > 5*time.Second { // on a loaded machine
				t.Errorf("a request took %v", slowest)
			}
			if trouble.end != nil {
				trouble.end(x)
			}
			over := time.Now()
			until(t, "answers are shared again", func() bool { return w.askAll(1).given > 0 })
			if t.Failed() {
				return
			}
			later := total(r.took) - time.Duration(len(r.took))*median(computed.took)
			t.Logf("| %s | %d | 0 | %d | %.0f | %.0f | %.1f |", trouble.name, len(r.took), r.given,
				slices.Max(r.took).Seconds()*1e3, max(0, later).Seconds()*1e3, time.Since(over).Seconds())
		})
	}
}
