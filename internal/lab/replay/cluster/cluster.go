// Package cluster is a fleet of simulated engines around one or more routers, in virtual time.
//
// A router sees what one in production sees: block events some time after they happened, load reports as of
// the last poll, what prefill answers carry, and its own requests. Everything else belongs to the cluster
// alone. Time is an integer of nanoseconds; chance comes from one seed.
package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/waitline"
)

// Side is one of the two pools.
type Side uint8

// The sides.
const (
	Prefill Side = iota
	Decode
)

// Node is one engine of the fleet.
type Node struct {
	Engine core.Config // ids and side channel are filled in
	Place  replica.Place
}

// Config describes a fleet. A zero field has the default that its comment names.
//
// Long: a field for each setting.
type Config struct {
	Nodes      [2][]Node              // by Side
	TokenBytes int                    // KV of a token
	Links      [replica.Links]float64 // bytes per second by class of path
	LinkModel  LinkModel              // how simultaneous transfers share links
	Host       HostTime               // CPU time of engines
	Setup      time.Duration          // of one transfer; 2 ms
	Hop        time.Duration          // of a message between router and engine, one way; 0.5 ms
	EventLag   time.Duration          // from a block's change until the router has the event; 0
	Poll       time.Duration          // between two load reports of an engine; 1 s
	StepLoad   bool                   // a load report is as old as the engine's last step, as in vLLM
	Routers    int                    // number of routers, for the code that makes routers; 1
	QueueLimit int                    // requests that may wait for room at a router; 1024
	QueueTime  time.Duration          // for how long a request may wait; 30 s
	Troubles   []Trouble              // failures of replicas; needs routers that are a [Survivor]
	Misstated  Misstated              // wrong facts that routers get
	Pulls      bool                   // see [Config.SetHostMemory]
	Mix        *Mix                   // the classes and tenants of requests; nil: none
	Started    func(time.Duration)    // called with the virtual time now and then; may be nil
	_          struct{}               // keyed literals only
}

func (c Config) withDefaults() Config {
	c.Setup = cmp.Or(c.Setup, 2*time.Millisecond)
	c.Hop = cmp.Or(c.Hop, 500*time.Microsecond)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Routers = max(1, c.Routers)
	c.QueueLimit = cmp.Or(c.QueueLimit, 1024)
	c.QueueTime = cmp.Or(c.QueueTime, 30*time.Second)
	return c
}

// Epoch is virtual time zero as routers see it.
var epoch = time.Unix(1_700_000_000, 0)

// Query is one request as a router sees it. It does not contain the length of the answer.
type Query struct {
	Slot    int      // small number, unique while the request lives
	Session uint64   // 0: the trace has none
	Tokens  int      // of the prompt; an estimate without token ids
	Keys    []kv.Key // of the prompt's full blocks, or chunks, see [Misstated]; read only
	Chunk   float64  // estimated tokens of a chunk; 0 if Keys are of blocks
	Counted int      // tokens of the prompt by the engine's count; 0 until an engine has answered
	At      time.Time
	Asked   capture.Asked
	Class   *Class // nil: none
}

// Refuse is returned by a router instead of a decode replica: the request is refused and does not wait.
const Refuse = -1

// Router decides. Each method is called when a real router would get the information.
type Router interface {
	// Place chooses and books a replica of each side. If p is below zero, d prefills itself. If no replica has
	// room, Place reports that and is called again later, unless d is [Refuse].
	Place(q *Query, now time.Time) (p, d int, room bool)
	Answered(q *Query, cached int, took time.Duration, now time.Time) // prefill has answered
	// Decode is about to be sent: the last moment for another replica.
	Bind(q *Query, now time.Time) (d int)
	First(q *Query, now time.Time)                                       // the first token of the answer
	Done(q *Query, output int, ttft, total time.Duration, now time.Time) // the last token
	Apply(side Side, i int, b *kv.Batch)                                 // block events of a replica
	Observe(side Side, i int, l replica.Load, now time.Time)             // a load report
	Tick(now time.Time)                                                  // once a second
	Events() [2]bool                                                     // the sides whose block events it wants
}

// Puller is a [Router] that lets the first leg of a request pull the leading tokens of its prompt from
// another engine.
type Puller interface {
	// Pull returns the engine to pull from, and the number of tokens that it has; 0 for none.
	Pull(q *Query) (side Side, i, tokens int)
}

// Sharer is a [Router] that regularly reports its bookings to the other routers.
type Sharer interface {
	ShareEvery() time.Duration              // 0 never
	Share(now time.Time) any                // its report to the others
	Hear(from int, said any, now time.Time) // another router's report
}

// engine is one simulated engine and its state in the cluster.
type engine struct {
	core  *core.Engine
	side  Side
	index int

	steps  steps
	beside beside
	feed   *feed         // block events on their way to the router
	link   time.Duration // when its side of the network is free; for [Queued] links

	failing float64 // share of its requests that fail
	gone    bool    // it takes no requests
}

// steps are the steps of an engine.
type steps struct {
	busy    bool          // a step is running
	until   time.Duration // its end
	current core.Step     // the running step
	coming  core.Stats    // what vLLM publishes at the end of the running step
	told    core.Stats    // and published at the end of the last
	wake    time.Duration // when the idle engine makes a step by itself, 0 for never
	spent   time.Duration // in all steps
	count   int
}

// front is a router with its waiting requests.
type front struct {
	Router
	waiting waitline.Queue[*call] // for room
	expires time.Duration         // when the first call may have waited for too long
}

// Cluster runs one trace through its routers.
type Cluster struct {
	cfg      Config
	fronts   []*front
	rnd      *rand.Rand
	sessions sessions

	clock   virtualTime
	engines engines
	network *network // for [Shared] links

	slots    slots
	result   Result
	failures legFailures
	want     [2]bool
	blocks   []uint64
}

// virtualTime is the present time and the coming events.
type virtualTime struct {
	now    time.Duration
	events queue
}

// engines are the replicas of the fleet.
type engines struct {
	of   [2][]*engine // by Side
	byID map[string]*engine
}

// slots numbers the living calls.
type slots struct {
	live []*call // by slot
	free []int
}

// legFailures says which legs fail.
type legFailures struct {
	chance *rand.Rand
	count  int
}

// New makes a cluster with one new router.
func New(c Config, router Router, source Source, seed uint64) (*Cluster, error) {
	return NewSeveral(c, []Router{router}, source, seed)
}

// NewSeveral makes a cluster with routers of the same kind. Each request comes to one router, and no other
// router sees it. Each router gets all events and asks every engine for its load.
func NewSeveral(c Config, routers []Router, source Source, seed uint64) (*Cluster, error) {
	c = c.withDefaults()
	if len(c.Nodes[Decode]) == 0 {
		return nil, fmt.Errorf("a cluster needs decode replicas")
	}
	cl := &Cluster{
		cfg: c, sessions: sessions{source: source}, rnd: rand.New(rand.NewPCG(seed, 0x636c7573)),
		engines: engines{byID: map[string]*engine{}},
	}
	for _, r := range routers {
		f := &front{Router: r}
		f.waiting.Limit = c.QueueLimit
		cl.fronts = append(cl.fronts, f)
		for side, want := range r.Events() {
			cl.want[side] = cl.want[side] || want && c.Misstated.follows()
		}
	}
	cl.network = newNetwork(c.Links, len(c.Nodes[Prefill]), len(c.Nodes[Decode]))
	for side := range c.Nodes {
		for i, n := range c.Nodes[side] {
			e := newEngine(Side(side), i, n, cl.want[side])
			cl.engines.of[side] = append(cl.engines.of[side], e)
			cl.engines.byID[e.core.EngineID()] = e
		}
	}
	if err := cl.checkTroubles(); err != nil {
		return nil, err
	}
	cl.planTroubles(seed)
	truth := &Truth{c: cl}
	for _, r := range routers {
		if s, ok := r.(Seer); ok {
			s.See(truth)
		}
	}
	return cl, nil
}

func newEngine(side Side, i int, n Node, events bool) *engine {
	c := n.Engine
	c.EngineID = ID(side, i)
	c.Port = 5600 + i
	c.NoEvents = !events
	return &engine{core: core.New(c), side: side, index: i, feed: &feed{}}
}

// ID is the name of a replica.
func ID(side Side, i int) string { return [...]string{"p", "d"}[side] + fmt.Sprint(i) }

// Replicas describes one side as routers know it.
func (c Config) Replicas(side Side) []replica.Replica {
	c = c.withDefaults()
	var all []replica.Replica
	for i, n := range c.Nodes[side] {
		e := core.New(
			core.Config{BlockSize: n.Engine.BlockSize, Blocks: 2, MaxModelLen: n.Engine.MaxModelLen},
		).Config()
		r := replica.Replica{ID: replica.ID(ID(side, i)), Role: replica.Prefill, Host: ID(side, i), Place: n.Place}
		if side == Decode {
			r.Role = replica.Decode
		}
		r.Facts = replica.Facts{
			Model: "m", Models: []string{"m"}, Version: "0.32.0", MaxModelLen: n.Engine.MaxModelLen,
			BlockSize: e.BlockSize, Blocks: n.Engine.Blocks,
			PrefixCaching: true, Ranks: 1, Events: replica.EventSource{Endpoint: "virtual"}, ReuseIDs: true,
		}
		if c.Pulls {
			r.PullPort = 5710
		}
		all = append(all, r)
	}
	return all
}

// Time is a moment as routers see it.
func Time(at time.Duration) time.Time { return epoch.Add(at) }
