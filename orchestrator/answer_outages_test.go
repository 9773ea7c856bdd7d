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

// storeInTrouble is a store of answers that something happens to.
type storeInTrouble struct {
	t      *testing.T
	server *valkeytest.Server
	dialed string // the address in the configuration
	master string // by which sentinels know the server; "" without sentinels
	link   *valkeytest.SlowLink
}

// storeTrouble is one thing that happens to a server behind the memory.
type storeTrouble struct {
	name       string
	store      func(t *testing.T) *storeInTrouble // a server alone, unless set
	begin, end func(x *storeInTrouble)            // end nil: it is over at once
	gives      bool                               // what it had is given out meanwhile
	down       bool                               // it is left alone meanwhile, but for a look a second
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

// says sends the server a command of an operator.
func (x *storeInTrouble) says(args ...any) {
	x.t.Helper()
	raw := redis.NewClient(&redis.Options{Addr: x.server.Addr, MaxRetries: -1})
	defer raw.Close()
	if err := raw.Do(context.Background(), args...).Err(); err != nil {
		x.t.Fatal(err)
	}
}

// poison puts into the place of each answer that of another question, or no answer at all.
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

// drops ends the connections that were let in before.
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

// What is asked while something happens to the store.
const (
	outageQuestions = 24
	outageRounds    = 4
)

// lookers is a world before a store, with engines that take no time: what is slow is the store.
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

// askedAll is what came of a round of questions, each of them to a router whose memory is empty.
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

// Whatever happens to the server behind the memory, every request gets its exact answer, not much later; and
// when it is over, answers are shared again. With -v it prints a table.
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
			// On a loaded machine looks are later than the budget, and the store is left alone for a while then.
			for end := time.Now().Add(time.Minute); before.given == 0 && time.Now().Before(end); {
				before = w.askAll(1)
			}
			if before.given == 0 {
				t.Fatal("nothing is given from the store: the test shows nothing")
			}
			down := w.looked(valkey.Down)
			trouble.begin(x)
			r := w.askAll(outageRounds)
			// On a loaded machine some looks are later than the budget.
			if trouble.gives && r.given == 0 || trouble.down && r.given > 0 {
				t.Errorf("%d of %d answers are from the store", r.given, len(r.took))
			}
			if trouble.down && w.looked(valkey.Down) == down {
				t.Error("every request asked the server")
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
