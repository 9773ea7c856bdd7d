package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

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

	up      atomic.Bool
	due     dueWork
	relief  relief
	scraped scraped
	states  states // of its replicas
	streams following

	facts  facts
	outage outage
}

// dueWork is what the next round has to ask.
type dueWork struct {
	todo   todo
	listed time.Time // when the server listed its models; of run alone
}

// watcherLife is how a watcher is woken, what requests ask of its server, and how it ends.
type watcherLife struct {
	wakeUp chan struct{} // a request saw it dead, or a reload changed something: look now
	health health
	gone   chan struct{} // closed when nothing comes into the pools from here any more
	stop   context.CancelFunc
	drain  drain
}

// relief is how one server stands in for another until the other has joined. The fleet's mutex guards the
// fields that are not atomic.
type relief struct {
	awaited   atomic.Bool // another server stands in for it until it has joined
	successor *Watcher    // for which it stands in
	ofPool    bool        // it stands in for the first server that joins its pool
	joining   bool        // it joins, or has joined: no server begins to stand in for it
}

// scraped is the results of the scrapes.
type scraped struct {
	signs     *liveness.Signs
	owed      owed                          // an answer, to a question about tokens
	transfers Transfers                     // to a decode server
	leases    atomic.Pointer[LeaseCounters] // as of the newest scrape; nil before
	outages   atomic.Uint32                 // scrapes without a connection
}

// todo is what others have found that the watcher has to do when it looks next.
type todo struct {
	askModels atomic.Bool // the server did not know a model that it should serve
}

// Up reports whether the server gives signs of life.
func (w *Watcher) Up() bool { return w.up.Load() }

// States returns the states that hold of a replica of the server, in the order in which they began.
func (w *Watcher) States(id replica.ID) []State { return w.states.of(id) }

// HasState reports whether a state holds of a replica of the server.
func (w *Watcher) HasState(id replica.ID, state string) bool { return w.states.has(id, state) }

// Members returns a replica for each rank of the server; none before it has joined, or after it has left.
func (w *Watcher) Members() []replica.Replica { return w.facts.members() }

// Streams returns the streams of events that are followed.
func (w *Watcher) Streams() []*Stream { return w.streams.all() }

// markAlive notes a sign of life.
func (w *Watcher) markAlive() { w.scraped.signs.Note(w.fleet.opt.Clock.Running(time.Now())) }

// Reason says why the server is not up, or that it sleeps; "" when it can be used.
func (w *Watcher) Reason() string {
	if w.up.Load() {
		return w.whyAsleep()
	}
	return w.outage.why()
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
