package fleet

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/replica"
)

// Watcher keeps the knowledge about one engine server up to date. It probes until the server answers,
// follows the block events of each rank, and scrapes /metrics. It notices when the server dies, comes back
// or has been restarted.
//
//	probing --facts--> up --failures in a row, or a refused connection--> down --answers--> up
//	   ^                                                                               |
//	   '------------------- another process start time: facts and blocks are void -----'
//
// One goroutine runs it; other goroutines read through its methods.
type Watcher struct {
	// Immutable.
	fleet *Fleet
	*server
	life watcherLife

	relief  relief
	counted counted
	states  *states // of its replicas
	drain   drain
	pulse   pulse
	models  modelList
	streams following

	facts *facts
	shown shown
}

// watcherLife is how a watcher is woken, what requests ask of its server, and how it ends.
type watcherLife struct {
	wakeUp chan struct{} // a request saw it dead, or a reload changed something: look now
	gone   chan struct{} // closed when nothing comes into the pools from here any more
	stop   context.CancelFunc
}

// counted is what the counters of the server's engine say.
type counted struct {
	transfers *Transfers                    // to a decode server
	leases    atomic.Pointer[LeaseCounters] // as of the newest scrape; nil before
}

// shown is the published replicas of a server. The fleet's mutex guards it.
type shown struct {
	members   []replica.Replica
	endpoints []*Endpoint // of members
}

// relief is how one server stands in for another until the other has joined. The fleet's mutex guards the
// fields that are not atomic.
type relief struct {
	awaited   atomic.Bool // another server stands in for it until it has joined
	successor *Watcher    // for which it stands in
	ofPool    bool        // it stands in for the first server that joins its pool
	order     int         // its place in the file
	joining   bool        // it joins, or has joined: no server begins to stand in for it
}

// Up reports whether the server gives signs of life.
func (w *Watcher) Up() bool { return w.pulse.up.Load() }

// States returns the states that hold of a replica of the server, in the order in which they began.
func (w *Watcher) States(id replica.ID) []State { return w.states.of(id) }

// HasState reports whether a state holds of a replica of the server.
func (w *Watcher) HasState(id replica.ID, state string) bool { return w.states.has(id, state) }

// Members returns a replica for each rank of the server; none before it has joined, or after it has left.
func (w *Watcher) Members() []replica.Replica { return w.facts.members() }

// DrainStatus says how far the draining of the server has come.
func (w *Watcher) DrainStatus() DrainStatus { return w.drain.status() }

// InUse reports whether requests go to the server: it gives signs of life, does not sleep, and is not
// drained.
func (w *Watcher) InUse() bool { return w.Up() && !w.Asleep() && !w.Draining() }

// Streams returns the streams of events that are followed.
func (w *Watcher) Streams() []*Stream { return w.streams.all() }

// Reason says why the server is not up, or that it sleeps; "" when it can be used.
func (w *Watcher) Reason() string {
	if w.pulse.up.Load() {
		return w.whyAsleep()
	}
	return w.pulse.outage.why()
}

func (w *watcherLife) wake() {
	select {
	case w.wakeUp <- struct{}{}:
	default:
	}
}

// run watches until ctx ends.
func (w *Watcher) run(ctx context.Context) {
	defer w.streams.unfollow(nil)
	var once sync.Once
	for w.probe(ctx) {
		once.Do(func() { // beside everything else: a name server may be slow
			w.fleet.keep.wg.Go(func() {
				w.fleet.opt.Panics.Contain("addresses", func() { w.warnOfAddresses(ctx) })
			})
		})
		w.streams.follow(ctx)
		w.scrapes(ctx)
	}
}

// sleep waits for d or until woken; false when ctx ended.
func (w *watcherLife) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-w.wakeUp:
	}
	return ctx.Err() == nil
}

// jitter spreads d by a fifth either way, so that the watchers of a fleet do not march in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// configure puts the settings s of the server in force. It keeps everything that is known about the server:
// its facts, blocks, books and connections. The caller holds the fleet's mutex and publishes.
func (w *Watcher) configure(s *settings) {
	was := w.set.Swap(s)
	if s == was || *s == *was {
		return // or every member that comes or goes would have all others looked at
	}
	if err := w.client.Change(w.fleet.options(s), s.tls != was.tls); err != nil { // New has taken the same
		w.log.Error("engine client cannot be changed", "replica", w.Name(), "error", err)
	}
	w.fleet.beginSeries(w)
	w.pulse.signs.SetUsual(s.usualPause())
	w.facts.remake()
	w.drain.changed(was.drain)
	if was.pool.Index != s.pool.Index {
		w.streams.anew.Store(true)
	}
	w.streams.due.Store(true)
	w.life.wake()
}

// serves reports whether the server has joined and gives signs of life.
func (w *Watcher) serves() bool { return w.facts.joined() && w.Up() }

// tried reports whether the server has reported its facts, or was asked in vain. Between its answer and the
// next publish the server is up without known facts; then it does not count as tried.
func (w *Watcher) tried() bool {
	return w.facts.joined() || w.pulse.outage.why() != NotProbed
}

// outlast listens to a server that is no longer watched until it has left and no request runs on it. It
// writes nothing to the pools, where others may have its replicas' names.
func (w *Watcher) outlast(ctx context.Context) {
	for failed := 0; w.facts.needed() && w.life.sleep(ctx, jitter(w.interval(failed))); {
		m, err := w.pulse.scrape(ctx)
		if err != nil {
			failed++
			continue
		}
		failed = 0
		w.counted.leases.Store(leaseCounters(&m, w.pulse.outages.Load()))
		w.fleet.processes.note(w.process, m.Started)
	}
}

// endpointsLocked returns the ways to the replicas of the server, and of each a name that it had before. A
// way stays the same until its replica is made again.
func (w *Watcher) endpointsLocked() ([]*Endpoint, []replica.ID) {
	members, former := w.facts.named()
	if len(members) == 0 {
		return nil, nil
	}
	if s := &w.shown; len(s.members) == 0 || &s.members[0] != &members[0] {
		s.members, s.endpoints = members, make([]*Endpoint, len(members))
		for i, m := range members {
			s.endpoints[i] = &Endpoint{Member: m, w: w}
			if m.Pinned() {
				s.endpoints[i].rank = strconv.Itoa(m.Rank - m.Facts.FirstRank)
			}
		}
	}
	return w.shown.endpoints, former
}

// newWatcher makes the watcher of a server that was not watched before.
func newWatcher(f *Fleet, key serverKey, s *settings) (*Watcher, error) {
	u, err := url.Parse(s.cfg.URL)
	if err != nil {
		return nil, err
	}
	client, err := engine.New(f.options(s))
	if err != nil {
		return nil, err
	}
	of := &server{
		key: key, role: key.role, host: u.Hostname(), client: client,
		process: f.processes.of(key.url), pool: f.pool(key.role), log: f.opt.Panics.Log,
	}
	w := &Watcher{
		fleet: f, server: of, facts: &facts{server: of, noEvents: f.opt.NoEvents}, states: &states{server: of},
		pulse: pulse{
			server: of, clock: f.opt.Clock, panics: f.opt.Panics, signs: liveness.NewSigns(s.usualPause()),
			outage: outage{reason: NotProbed},
		},
		life:    watcherLife{wakeUp: make(chan struct{}, 1), gone: make(chan struct{})},
		counted: counted{transfers: new(Transfers)},
	}
	w.drain = drain{server: of, facts: w.facts, states: w.states}
	w.models = modelList{server: of, facts: w.facts}
	w.models.kv.ask, w.models.unusable = w.askAddresses, w.unusable
	w.streams = following{server: of, facts: w.facts, fleet: f}
	w.set.Store(s)
	w.drain.begin(s.drain, time.Now())
	return w, nil
}
