package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/config"
	"tandem/internal/engine"
	"tandem/internal/kvevents"
	"tandem/internal/replica"
)

// watcher keeps what is known of one engine server true: it probes until the server answers, follows the block events of each rank,
// scrapes /metrics, and notices when the server dies, comes back or has been restarted.
//
//	probing --facts--> up --failures in a row, or a refused connection--> down --answers--> up
//	   ^                                                                               |
//	   '------------------- another process start time: facts and blocks are void -----'
//
// One goroutine runs it; other goroutines read through its methods.
type watcher struct {
	// Immutable.
	f       *fleet
	key     serverKey
	role    replica.Role
	host    string
	client  *engine.Client
	process *process
	kick    chan struct{} // a request saw it dead, or a reload changed something: look now
	gone    chan struct{} // closed when nothing comes into the pools from here any more
	stop    context.CancelFunc

	set       atomic.Pointer[settings]
	up        atomic.Bool
	reindexed atomic.Bool // the pool's index is fed in another way now: what is followed has to begin anew
	resourced atomic.Bool // what is followed may have to change
	doubted   atomic.Bool // the server did not know a model that it should serve
	awaited   atomic.Bool // another server stands in for it until it has joined
	pulse     pulse
	received  received                  // by a decode server
	states    states                    // of its replicas
	ends      atomic.Pointer[leaseEnds] // as of the newest scrape; nil before
	outages   atomic.Uint32             // scrapes that reached nobody

	listed    time.Time // when the server said what it serves; of run alone
	successor *watcher  // for which it stands in; guarded by the fleet's mutex

	mu        sync.Mutex // guards the following
	told      []replica.Facts
	facts     []replica.Replica // of what was told
	former    []replica.ID      // a name before, of each of facts, "" for none
	reason    string            // why it is not up
	followers []*followed
	left      bool
	users     int  // requests that run there and have to know how it fares
	deaf      bool // it has left and nobody listens any more
}

// followed is the event stream of one rank.
type followed struct {
	source   kvevents.Source
	follower *kvevents.Follower
	stop     context.CancelFunc
	done     chan struct{}
	state    atomic.Uint32
	reason   atomic.Pointer[string]
	applied  applied

	naming sync.RWMutex // held, for reading, while something goes into the pool under id
	id     replica.ID
}

// name is what the replica is called now.
func (f *followed) name() replica.ID {
	f.naming.RLock()
	defer f.naming.RUnlock()
	return f.id
}

// renaming is a stream whose replica gets another name. What it brings waits meanwhile.
type renaming struct {
	f  *followed
	id replica.ID
}

func (r renaming) end() {
	r.f.id = r.id
	r.f.naming.Unlock()
}

// holdRenamed appends the streams whose replicas have another name now, held until their renaming ends.
func (w *watcher) holdRenamed(held []renaming) []renaming {
	for _, f := range w.streams() {
		for _, m := range w.members() {
			if m.Rank == f.source.Rank && m.ID != f.name() {
				f.naming.Lock()
				held = append(held, renaming{f, m.ID})
				break
			}
		}
	}
	return held
}

func (w *watcher) members() []replica.Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return nil
	}
	return w.facts
}

// hear notes a sign of life.
func (w *watcher) hear() { w.pulse.beat(w.f.o.stall.lived(time.Now())) }

// why says why the server is not up, "" when it is.
func (w *watcher) why() string {
	if w.up.Load() {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

func (w *watcher) lookNow() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// named returns the members, and of each a name that it had before.
func (w *watcher) named() ([]replica.Replica, []replica.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return nil, nil
	}
	return w.facts, w.former
}

// joined reports whether the server has ever said what it is.
func (w *watcher) joined() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told) > 0
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.unfollow(nil)
	for w.probe(ctx) {
		w.follow(ctx)
		w.scrapes(ctx)
	}
}

// probe asks for the facts until the server gives them; false when ctx ended first.
func (w *watcher) probe(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		asked, cancel := context.WithTimeout(ctx, probePatience*w.set.Load().probe)
		facts, err := w.client.Probe(asked)
		cancel()
		if err == nil {
			if err = w.accept(facts); err == nil {
				w.listed = time.Now()
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		w.down(err)
		if !w.sleep(ctx, jitter(wait)) {
			return false
		}
	}
	return false
}

// accept turns the facts into members of the pool.
func (w *watcher) accept(facts []replica.Facts) error {
	if len(facts) == 0 {
		return errors.New("the server told nothing about itself")
	}
	if err := speaks(facts[0].Connector); err != nil {
		return err
	}
	w.see(facts[0].Started)
	w.forgetTokens()
	w.hear()
	w.up.Store(true)
	w.f.join(w, facts)
	ms := w.members()
	if len(ms) == 0 {
		return errLeft
	}
	w.showTrust()
	for _, m := range ms {
		w.f.pool(w.role).SetHealthy(m.ID, true, "")
	}
	w.f.o.log.Info("replica joined", "replica", w.name(), "pool", w.role.String(), "model", ms[0].Facts.Model, "version", ms[0].Facts.Version,
		"block_size", ms[0].Facts.BlockSize, "blocks", ms[0].Facts.Blocks, "ranks", len(ms), "events", ms[0].Facts.Events.Endpoint)
	return nil
}

// speaks refuses an engine of another KV-transfer protocol than Tandem's. A decode engine with MoRIIO takes every request for one whose blocks are
// elsewhere, also one that was not split, and answers it from blocks that nobody filled: no request at all may go there.
func speaks(protocol string) error {
	if protocol == "moriio" {
		return errors.New("it has the MoRIIO connector, which answers from unfilled blocks what no MoRIIO router sends: " +
			"start it with kv_connector NixlConnector")
	}
	return nil
}

// errLeft is told by nobody to anybody: the watcher ends.
var errLeft = errors.New("it has left the configuration")

// learn takes in what the server said of itself.
func (w *watcher) learn(facts []replica.Facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told, w.reason = facts, ""
	w.makeLocked()
}

// makeLocked makes the replicas anew, of what the server told and of what the configuration says.
func (w *watcher) makeLocked() {
	was := w.facts
	w.facts = w.replicasLocked(w.told)
	former := make([]replica.ID, len(w.facts))
	for i := range w.facts {
		switch {
		case len(was) != len(w.facts):
		case was[i].ID != w.facts[i].ID:
			former[i] = was[i].ID
		default:
			former[i] = w.former[i]
		}
	}
	w.former = former
}

// replicasLocked makes a replica of the facts of each rank. What the engine says of its blocks comes before the file; what its events say comes before both,
// in the pool.
func (w *watcher) replicasLocked(facts []replica.Facts) []replica.Replica {
	ms := make([]replica.Replica, len(facts))
	set := w.set.Load()
	for i, fact := range facts {
		fact.BlockSize, fact.Blocks = cmp.Or(fact.BlockSize, set.pool.BlockSize), cmp.Or(fact.Blocks, set.pool.Blocks)
		fact.Drafts = cmp.Or(fact.Drafts, set.pool.SpeculativeTokens)
		ms[i] = replica.Replica{
			ID: w.id(i, len(facts)), Role: w.role, URL: w.key.url, Host: w.host, Rank: fact.FirstRank + i,
			Place: w.place(), Facts: fact,
		}
		ms[i].Facts.Events = w.eventsLocked(fact, i)
	}
	return ms
}

// reindex follows the engine's events from now on, or does so no longer. The streams begin anew, since what they brought is no longer known.
func (w *watcher) reindex(ctx context.Context) {
	w.unfollow(nil)
	for _, m := range w.members() {
		w.f.pool(w.role).Forget(m.ID)
	}
	w.follow(ctx)
}

func (w *watcher) id(i, n int) replica.ID {
	if n == 1 {
		return replica.ID(w.name())
	}
	return replica.ID(w.name() + "/dp" + strconv.Itoa(i))
}

// place fills the host from the URL, since two replicas on one address share one.
func (w *watcher) place() replica.Place {
	p := replica.Place(w.set.Load().cfg.Place)
	if p.Host == "" {
		p.Host = w.host
	}
	return p
}

// eventsLocked says where a rank publishes what is to be followed: the file's word first, else the engine's own.
func (w *watcher) eventsLocked(fact replica.Facts, rank int) replica.EventSource {
	set := w.set.Load()
	switch e := set.cfg.Events; {
	case set.pool.Index != config.IndexEvents || w.f.o.opt.NoEvents:
		return replica.EventSource{}
	case e.Endpoint != "":
		return engine.EventSource(w.host, offsetPort(e.Endpoint, rank), offsetPort(e.Replay, rank), e.Topic)
	}
	return fact.Events
}

// offsetPort is vLLM's rule for data-parallel ranks: rank r publishes at the port plus r (distributed/kv_events.py, offset_endpoint_port).
func offsetPort(endpoint string, rank int) string {
	if rank == 0 || endpoint == "" {
		return endpoint
	}
	i := len(endpoint)
	for i > 0 && endpoint[i-1] >= '0' && endpoint[i-1] <= '9' {
		i--
	}
	port, err := strconv.Atoi(endpoint[i:])
	if err != nil || port == 0 {
		return endpoint
	}
	return endpoint[:i] + strconv.Itoa(port+rank)
}

// down marks the server and its members unusable.
func (w *watcher) down(err error) {
	reason := engine.Explain(err)
	was := w.up.Swap(false)
	w.mu.Lock()
	changed := w.reason != reason
	w.reason = reason
	members := w.facts
	w.mu.Unlock()
	for _, m := range members {
		w.f.pool(w.role).SetHealthy(m.ID, false, reason)
	}
	if was || changed {
		w.f.o.log.Warn("replica is not usable", "replica", w.name(), "pool", w.role.String(), "reason", reason)
	}
}

// scrapes polls /metrics until ctx ends, or until the server has been restarted and has to be probed anew.
func (w *watcher) scrapes(ctx context.Context) {
	failed := 0
	for first := true; ; first = false {
		if !first && !w.sleep(ctx, jitter(w.interval(failed))) {
			return
		}
		switch {
		case w.reindexed.Swap(false):
			w.reindex(ctx)
		case w.resourced.Swap(false):
			w.follow(ctx)
		}
		m, err := w.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errUnreported):
			failed = 0
			w.unreported(errUnreported)
			continue
		case errors.Is(err, errNotAsked):
			if w.up.Load() {
				w.unreported(err)
			}
			continue
		case err != nil:
			failed++
			if engine.Unreachable(err) || failed >= w.set.Load().failures {
				w.down(err)
			}
			continue
		case w.restarted(m):
			w.ends.Store(nil)
			w.see(m.Started)
			w.forget("the engine was restarted")
			for _, m := range w.members() {
				w.f.o.planner.Outliers().Restarted(m.ID, time.Now())
			}
			return
		}
		w.see(m.Started)
		failed = 0
		if !first && w.undescribed() {
			w.describe(ctx)
		}
		w.take(m)
		if !w.relist(ctx) {
			w.forget("it serves another model")
			return
		}
	}
}

// undescribed reports whether the engine could not tell its metrics when it was probed: then its start and its cache are unknown.
func (w *watcher) undescribed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told) > 0 && w.told[0].Started == 0
}

// describe probes once more, now that the engine tells its metrics. When that fails, what is known holds.
func (w *watcher) describe(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, probePatience*w.set.Load().probe)
	defer cancel()
	facts, err := w.client.Probe(asked)
	if err != nil || len(facts) == 0 || facts[0].Started == 0 {
		return
	}
	if err := w.accept(facts); err == nil {
		w.follow(ctx)
	}
}

// see notes which process the server is now.
func (w *watcher) see(started float64) {
	if w.f.processes.see(w.process, started) {
		w.f.o.log.Info("the engine was restarted: its cache is used again", "replica", w.name())
	}
	w.showTrust()
}

// interval is the time to the next scrape; a server in trouble is asked less often.
func (w *watcher) interval(failed int) time.Duration {
	base := w.set.Load().pool.PollInterval
	if failed == 0 && w.doubted.Load() {
		return min(base, modelsAtOdd)
	}
	return min(base*time.Duration(1+failed/8), max(base, 10*time.Second))
}

// restarted tells by the process start time. Engines that do not say it are told by their event sequence alone.
func (w *watcher) restarted(m engine.Metrics) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.facts) > 0 && w.facts[0].Facts.Started > 0 && m.Started > 0 && m.Started != w.facts[0].Facts.Started
}

// take hands a scrape to the pool.
func (w *watcher) take(m engine.Metrics) {
	now := time.Now()
	w.ends.Store(w.endsOf(m))
	w.doubt(m)
	w.mu.Lock()
	w.reason = ""
	members := w.facts
	w.mu.Unlock()
	back := !w.up.Swap(true)
	for i := range members {
		if load, ok := m.Loads[members[i].Rank]; ok {
			load.At = now
			w.f.pool(w.role).Observe(members[i].ID, load, now)
		}
		w.f.pool(w.role).SetHealthy(members[i].ID, true, "")
		w.state(members[i].ID, stateUnreported, "")
		w.judgeSpeed(members[i].ID)
	}
	if back {
		w.f.o.log.Info("replica is back", "replica", w.name(), "pool", w.role.String())
	}
	w.f.o.queue.wake()
}

// forget voids the blocks of all ranks.
func (w *watcher) forget(reason string) {
	w.f.o.m.restarts.WithLabelValues(w.role.String(), w.name()).Inc()
	w.f.o.log.Warn("replica's blocks are forgotten", "replica", w.name(), "pool", w.role.String(), "reason", reason)
	w.forgetTokens()
	for _, m := range w.members() {
		w.f.pool(w.role).Forget(m.ID)
	}
	for _, f := range w.streams() {
		f.follower.Restarted("its process is another one") // or what it applied meanwhile would be forgotten, and never heard of again
	}
}

// follow makes the streams that are followed those that the ranks publish now. Who is followed at another address than before is forgotten in between: a
// stream begins with all that there is, so that what the old one brought would count twice.
func (w *watcher) follow(ctx context.Context) {
	wanted := map[kvevents.Source]replica.ID{}
	for _, m := range w.members() {
		if m.Facts.Events.Endpoint != "" {
			wanted[w.source(&m)] = m.ID
		}
	}
	for _, f := range w.unfollow(wanted) {
		w.f.pool(w.role).Forget(f.name())
	}
	w.f.mu.Lock() // names do not change meanwhile
	defer w.f.mu.Unlock()
	for _, m := range w.members() {
		src := w.source(&m)
		if src.Endpoint == "" {
			w.f.pool(w.role).SetTrust(m.ID, replica.TrustUnknown) // by what is known of it the pool sees that there is nothing to hear
			continue
		}
		if _, ok := wanted[src]; !ok || slices.ContainsFunc(w.streams(), func(f *followed) bool { return f.source == src }) {
			continue // one that is wanted only now has a look of its own coming
		}
		w.startFollower(ctx, m.ID, src)
	}
}

// source is where a replica's events come from.
func (w *watcher) source(m *replica.Replica) kvevents.Source {
	e, only := m.Facts.Events, len(w.members()) == 1
	return kvevents.Source{Endpoint: e.Endpoint, Replay: e.Replay, Topic: e.Topic, Rank: m.Rank, Only: only}
}

func (w *watcher) startFollower(ctx context.Context, id replica.ID, src kvevents.Source) {
	ctx, cancel := context.WithCancel(ctx)
	f := &followed{id: id, source: src, stop: cancel, done: make(chan struct{})}
	f.follower = kvevents.NewFollower(src, newSink(w, f), kvevents.Options{Context: w.f.o.zmq})
	w.mu.Lock()
	w.followers = append(w.followers, f)
	w.mu.Unlock()
	go func() { // ended by unfollow, which run defers
		defer close(f.done)
		err := errors.New("a bug of this router")
		if w.f.o.panics.Contain("events", func() { err = f.follower.Run(ctx) }) {
			w.reindexed.Store(true) // a stream anew, and an index: nobody knows what this one has left undone
		}
		if err != nil && ctx.Err() == nil {
			w.f.pool(w.role).SetTrust(f.name(), replica.Stale)
			f.say(kvevents.Stale, err.Error())
			w.f.o.log.Error("block events cannot be followed", "replica", string(f.name()), "endpoint", src.Endpoint, "error", err)
		}
	}()
}

// unfollow stops the followers of all other sources than those to keep, waits for them and returns them.
func (w *watcher) unfollow(keep map[kvevents.Source]replica.ID) []*followed {
	w.mu.Lock()
	var kept, ended []*followed
	for _, f := range w.followers {
		if _, ok := keep[f.source]; ok {
			kept = append(kept, f)
		} else {
			ended = append(ended, f)
		}
	}
	w.followers = kept
	w.mu.Unlock()
	for _, f := range ended {
		f.stop()
	}
	for _, f := range ended {
		<-f.done
	}
	return ended
}

func (w *watcher) streams() []*followed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.followers)
}

// sleep waits for d or a kick; false when ctx ended.
func (w *watcher) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-w.kick:
	}
	return ctx.Err() == nil
}

// jitter spreads d by a fifth either way, so that the watchers of a fleet do not march in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
