// Package fleet watches the engine servers of the configuration: it learns their facts, follows their events
// and their load, and tells both pools.
//
// A [Watcher] runs for each server. Each data-parallel rank that it finds becomes a member of a pool, and
// gets an [Endpoint] through which requests reach it.
package fleet

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// Pool takes what watchers learn about its members: their names, events, load and health.
type Pool interface {
	SetIndexing(x roster.Indexing)
	ReportedBlockSize(id replica.ID) (reported, expected int)
	SetMembers(ms []replica.Replica, now time.Time)
	Apply(id replica.ID, b *kv.Batch) kv.Applied
	Forget(id replica.ID)
	Unannounced(id replica.ID, now time.Time) (prompts int, since time.Duration)
	SetTrust(id replica.ID, t replica.Trust)
	Observe(id replica.ID, l replica.Load, now time.Time)
	SetHealthy(id replica.ID, ok bool, reason string)
	Slow(id replica.ID, held bool) (cause string, known bool)
	Booked(id replica.ID) int
	Uncounted(id replica.ID, n int)
	Unseen(id replica.ID) (mean float64, sure bool)
}

// DecodePool is a [Pool] that also knows which replicas run as many sequences as their engine can.
type DecodePool interface {
	Pool
	SequencesFull(id replica.ID, now time.Time) (cause string)
}

// Options is what a fleet is made of besides its configuration. Every field is needed, except Dial, LookUp,
// Kept and NoEvents.
type Options struct {
	Panics panics.Guard                                                      // its Log is the fleet's log, too
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error) // nil dials TCP
	// LookUp finds the addresses of engines; nil asks the machine's resolver, unless there is a Dial.
	LookUp engine.LookUp
	// Bounds the connections to engines that wait for a request; nil is no bound.
	Kept *engine.Kept
	// Follow no streams of events.
	NoEvents bool
	Prefill  Pool
	Decode   DecodePool
	Outliers *outlier.Set
	Clock    *liveness.Clock
	Registry prometheus.Registerer

	// News for the rest of the router. These functions must not call the fleet. MembersChanged gets the
	// renames, the present members, the members with a new name or new facts, and the names of all servers,
	// including servers not heard from yet.
	MembersChanged func(
		renames replica.Renames, member func(replica.ID) bool, arrived []*Endpoint, servers []string,
	)
	// What a decode replica has counted of its reads of other replicas' KV blocks.
	Counted func(replica.ID, replica.Reads, time.Time)
	// A request that waits may have room now.
	RoomChanged func()
	// The distrusted engine processes have changed, or a process is distrusted again. May be nil.
	DistrustChanged func()
	// The process that made a server's token ids is another one.
	ForgetTokens func(server string)
}

// Fleet is every engine server of the configuration, each with a watcher, and the members of the pools that
// the servers turned out to be. Safe for concurrent use, except that only one [Fleet.Apply] may run at a
// time.
type Fleet struct {
	opt                  Options
	restarts, distrusted *prometheus.CounterVec // pool, replica
	zmq                  kvevents.Context
	processes            processes
	common               map[replica.Role]*poolSettings // of the configuration in force; of Apply alone

	pub     published
	listed  listing
	pairing pairing

	keep *keeping
}

// published is what every request reads, without a lock.
type published struct {
	endpoints atomic.Pointer[map[replica.ID]*Endpoint]  // replaced whole, read by every request
	former    atomic.Pointer[map[replica.ID]replica.ID] // names that replicas had before; replaced whole
	drained   atomic.Pointer[[]Drained]                 // on command; replaced whole
	connector atomic.Pointer[setup.KV]                  // see [Fleet.SetConnector]
	turn      atomic.Uint64                             // round robin for questions that any engine can answer
}

// New returns a fleet without servers.
func New(opt Options) *Fleet {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"pool", "replica"})
		opt.Registry.MustRegister(c)
		return c
	}
	f := &Fleet{
		opt:      opt,
		restarts: counter("tandem_engine_restarts_total", "Engine restarts noticed, by pool and replica."),
		distrusted: counter("tandem_decode_distrusted_total",
			"Times a decode engine may have cached wrong blocks, after which all that it had cached is not used "+
				"any more."),
		listed:  listing{pools: map[replica.Role][]*Endpoint{}},
		pairing: pairing{outliers: opt.Outliers, mates: map[*Endpoint]*Endpoint{}},
		keep:    &keeping{watchers: map[serverKey]*Watcher{}, ending: map[*Watcher]bool{}},
	}
	f.pub.endpoints.Store(&map[replica.ID]*Endpoint{})
	f.pub.former.Store(&map[replica.ID]replica.ID{})
	f.pub.drained.Store(new([]Drained))
	f.pub.connector.Store(new(setup.KV))
	return f
}

// roles are the pools, in the order in which errors and lists name them.
var roles = [...]replica.Role{replica.Prefill, replica.Decode}

func (f *Fleet) pool(role replica.Role) Pool {
	if role == replica.Prefill {
		return f.opt.Prefill
	}
	return f.opt.Decode
}

// Run starts the watchers, including the watchers of later reloads. When ctx ends, it waits for all watchers
// to end.
func (f *Fleet) Run(ctx context.Context) error {
	f.keep.mu.Lock()
	if f.keep.ctx != nil {
		f.keep.mu.Unlock()
		return errors.New("the fleet runs already")
	}
	f.keep.beginLocked(ctx)
	for _, w := range f.keep.watchers {
		f.startLocked(w)
	}
	f.keep.mu.Unlock()
	<-ctx.Done()
	f.keep.mu.Lock()
	f.keep.ended = true // a reload that comes now starts no watcher
	f.keep.mu.Unlock()
	f.keep.wg.Wait()
	for _, w := range f.keep.all() {
		w.client.Close()
	}
	return nil
}

func (f *Fleet) startLocked(w *Watcher) {
	if f.keep.ended {
		return
	}
	ctx, cancel := context.WithCancel(f.keep.ctx)
	w.life.stop = cancel
	f.keep.wg.Go(func() {
		f.opt.Panics.KeepRunning(ctx, "watcher", func() { w.run(ctx) })
		close(w.life.gone)
		f.opt.Panics.KeepRunning(f.keep.ctx, "watcher", func() { w.outlast(f.keep.ctx) })
	})
}

// eras calls change, which moves processes into new eras. Then the pools forget the blocks that these
// processes have cached.
func (f *Fleet) eras(change func()) (changed []*Watcher) {
	before := map[*process]uint32{}
	all := f.keep.all()
	for _, w := range all {
		before[w.process] = w.process.epoch.Load()
	}
	changes := f.processes.changes.Load()
	change()
	for _, w := range all {
		if w.process.epoch.Load() == before[w.process] {
			continue
		}
		for _, m := range w.Members() {
			w.pool.Forget(m.ID)
		}
		w.showDistrust()
		changed = append(changed, w)
	}
	if f.processes.changes.Load() != changes && f.opt.DistrustChanged != nil {
		f.opt.DistrustChanged()
	}
	return changed
}

// Distrusted returns the engine processes that may have cached wrong blocks, as far as this router knows. A
// process can be in the list without being an engine of this router.
func (f *Fleet) Distrusted() []replica.Distrust { return f.processes.all(time.Now()) }

// HearDistrust adds findings of other routers, or of this router before its restart. All of found must be
// plausible.
func (f *Fleet) HearDistrust(found []replica.Distrust) {
	if len(found) == 0 {
		return
	}
	for _, w := range f.eras(func() { f.processes.hear(found, time.Now()) }) {
		w.log.Warn("an engine may have cached wrong blocks, as another router has found, or this one before its "+
			"restart; its requests are salted until it is restarted: restart it when you can",
			"replica", w.Name(), "era", w.process.epoch.Load())
	}
}

// DistrustChanges counts how often an engine process became known as distrusted, or as distrusted again.
func (f *Fleet) DistrustChanges() uint64 { return f.processes.changes.Load() }

// SomeDistrusted reports whether some engine of the fleet may have cached wrong blocks.
func (f *Fleet) SomeDistrusted() bool {
	if f.DistrustChanges() > 0 {
		for _, e := range f.Endpoints() {
			if e.CacheEpoch() > 0 {
				return true
			}
		}
	}
	return false
}
