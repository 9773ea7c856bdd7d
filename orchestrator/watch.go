package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
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
	f            *fleet
	key          serverKey
	role         replica.Role
	order        int // place in the file
	host         string
	cfg          config.Replica
	pool         config.Pool
	client       *engine.Client
	probeTimeout time.Duration
	failures     int
	kick         chan struct{} // a request saw it dead: look now
	gone         chan struct{} // closed when run has ended
	stop         context.CancelFunc

	up        atomic.Bool
	reindexed atomic.Bool // the pool's index is fed in another way now: what is followed has to change
	doubted   atomic.Bool // the server did not know a model that it should serve
	pulse     pulse
	states    states                    // of its replicas
	ends      atomic.Pointer[leaseEnds] // as of the newest scrape; nil before
	outages   atomic.Uint32             // scrapes that reached nobody
	era       atomic.Uint32             // see [salted]; 0 while the server's cache is trusted

	listed time.Time // when the server said what it serves; of run alone

	mu        sync.Mutex // guards the following
	index     string     // how the pool's index is fed, as the configuration has it
	told      []replica.Facts
	facts     []replica.Replica // of what was told
	reason    string            // why it is not up
	followers []*followed
	left      bool
}

// followed is the event stream of one rank.
type followed struct {
	id       replica.ID
	source   kvevents.Source
	follower *kvevents.Follower
	stop     context.CancelFunc
	done     chan struct{}
	state    atomic.Uint32
	reason   atomic.Pointer[string]
	applied  applied
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

// leave stops the watcher of a server that the configuration no longer names. Requests that run there go on.
func (w *watcher) leave() {
	w.mu.Lock()
	w.left = true
	w.mu.Unlock()
	w.up.Store(false)
	if w.stop != nil {
		w.stop()
		<-w.gone
	}
	w.client.Close()
	w.forgetTokens()
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.unfollow()
	for w.probe(ctx) {
		w.follow(ctx)
		w.scrapes(ctx)
	}
}

// probe asks for the facts until the server gives them; false when ctx ended first.
func (w *watcher) probe(ctx context.Context) bool {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(wait*2, 5*time.Second) {
		asked, cancel := context.WithTimeout(ctx, 5*w.probeTimeout)
		facts, err := w.client.Probe(asked)
		cancel()
		if err == nil {
			if err = w.accept(facts); err == nil {
				w.listed = time.Now()
				return true
			}
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
	w.mu.Lock()
	w.told, w.facts = facts, w.replicasLocked(facts)
	ms := w.facts
	w.reason = ""
	w.mu.Unlock()
	w.forgetTokens()
	w.hear()
	w.up.Store(true)
	w.f.publish()
	for _, m := range ms {
		w.f.pool(w.role).SetHealthy(m.ID, true, "")
	}
	w.f.o.log.Info("replica joined", "replica", w.cfg.ID(), "pool", w.role.String(), "model", ms[0].Facts.Model, "version", ms[0].Facts.Version,
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

// replicasLocked makes a replica of the facts of each rank. What the engine says of its blocks comes before the file; what its events say comes before both,
// in the pool.
func (w *watcher) replicasLocked(facts []replica.Facts) []replica.Replica {
	ms := make([]replica.Replica, len(facts))
	for i, fact := range facts {
		fact.BlockSize, fact.Blocks = cmp.Or(fact.BlockSize, w.pool.BlockSize), cmp.Or(fact.Blocks, w.pool.Blocks)
		ms[i] = replica.Replica{
			ID: w.id(i, len(facts)), Role: w.role, URL: w.cfg.URL, Host: w.host, Rank: fact.FirstRank + i,
			Place: w.place(), Facts: fact,
		}
		ms[i].Facts.Events = w.eventsLocked(fact, i)
	}
	return ms
}

// setIndex changes how the pool's index is fed. The pool has forgotten all blocks already.
func (w *watcher) setIndex(index string) {
	w.mu.Lock()
	changed := w.index != index
	w.index = index
	w.mu.Unlock()
	if changed {
		w.reindexed.Store(true)
		w.lookNow()
	}
}

// reindex follows the engine's events from now on, or does so no longer. The streams begin anew, since what they brought is no longer known.
func (w *watcher) reindex(ctx context.Context) {
	w.unfollow()
	for _, m := range w.members() {
		w.f.pool(w.role).Forget(m.ID)
	}
	w.mu.Lock()
	w.facts = w.replicasLocked(w.told)
	w.mu.Unlock()
	w.f.publish() // the pool knows that events will come before the first of them does
	w.follow(ctx)
}

func (w *watcher) id(i, n int) replica.ID {
	if n == 1 {
		return replica.ID(w.cfg.ID())
	}
	return replica.ID(w.cfg.ID() + "/dp" + strconv.Itoa(i))
}

// place fills the host from the URL, since two replicas on one address share one.
func (w *watcher) place() replica.Place {
	p := replica.Place(w.cfg.Place)
	if p.Host == "" {
		p.Host = w.host
	}
	return p
}

// eventsLocked says where a rank publishes what is to be followed: the file's word first, else the engine's own.
func (w *watcher) eventsLocked(fact replica.Facts, rank int) replica.EventSource {
	switch {
	case w.index != config.IndexEvents || w.f.o.opt.NoEvents:
		return replica.EventSource{}
	case w.cfg.Events.Endpoint != "":
		e := w.cfg.Events
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
	reason := explain(err)
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
		w.f.o.log.Warn("replica is not usable", "replica", w.cfg.ID(), "pool", w.role.String(), "reason", reason)
	}
}

// explain says what an operator can act on, without our side's port numbers.
func explain(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: is the engine running and listening there?"
	case errors.As(err, &dns):
		return "host name " + dns.Name + " cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

// scrapes polls /metrics until ctx ends, or until the server has been restarted and has to be probed anew.
func (w *watcher) scrapes(ctx context.Context) {
	failed := 0
	for first := true; ; first = false {
		if !first && !w.sleep(ctx, jitter(w.interval(failed))) {
			return
		}
		if w.reindexed.Swap(false) {
			w.reindex(ctx)
		}
		asked, cancel := context.WithTimeout(ctx, w.probeTimeout)
		m, err := w.client.Scrape(asked)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) { // a refusal is an answer too
			w.hear()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed++
			if engine.NotSent(err) {
				w.outages.Add(1)
			}
			if engine.NotSent(err) || failed >= w.failures {
				w.down(err)
			}
			continue
		case w.restarted(m):
			w.era.Store(0)
			w.ends.Store(nil)
			w.forget("the engine was restarted")
			return
		}
		failed = 0
		w.take(m)
		if !w.relist(ctx) {
			w.forget("it serves another model")
			return
		}
	}
}

// interval is the time to the next scrape; a server in trouble is asked less often.
func (w *watcher) interval(failed int) time.Duration {
	base := cmp.Or(w.pool.PollInterval, time.Second)
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
	}
	if back {
		w.f.o.log.Info("replica is back", "replica", w.cfg.ID(), "pool", w.role.String())
	}
	w.f.o.queue.wake()
}

// forget voids the blocks of all ranks.
func (w *watcher) forget(reason string) {
	w.f.o.m.restarts.WithLabelValues(w.role.String(), w.cfg.ID()).Inc()
	w.f.o.log.Warn("replica's blocks are forgotten", "replica", w.cfg.ID(), "pool", w.role.String(), "reason", reason)
	w.forgetTokens()
	for _, m := range w.members() {
		w.f.pool(w.role).Forget(m.ID)
	}
	for _, f := range w.streams() {
		f.follower.Restarted("its process is another one") // or what it applied meanwhile would be forgotten, and never heard of again
	}
}

// follow starts a follower for each rank that publishes events and stops those whose address changed.
func (w *watcher) follow(ctx context.Context) {
	var keep []*followed
	var silent []replica.ID
	for _, m := range w.members() {
		if m.Facts.Events.Endpoint == "" {
			silent = append(silent, m.ID)
			continue
		}
		src := kvevents.Source{Endpoint: m.Facts.Events.Endpoint, Replay: m.Facts.Events.Replay, Topic: m.Facts.Events.Topic, Rank: m.Rank}
		w.mu.Lock()
		at := slices.IndexFunc(w.followers, func(f *followed) bool { return f.id == m.ID && f.source == src })
		var same *followed
		if at >= 0 {
			same = w.followers[at]
			w.followers = slices.Delete(w.followers, at, at+1)
		}
		w.mu.Unlock()
		if same == nil {
			same = w.startFollower(ctx, m.ID, src)
		}
		keep = append(keep, same)
	}
	w.unfollow()
	for _, id := range silent {
		w.f.pool(w.role).SetTrust(id, replica.TrustUnknown) // by what is known of it the pool sees that there is nothing to hear
	}
	w.mu.Lock()
	w.followers = keep
	w.mu.Unlock()
}

func (w *watcher) startFollower(ctx context.Context, id replica.ID, src kvevents.Source) *followed {
	ctx, cancel := context.WithCancel(ctx)
	f := &followed{id: id, source: src, stop: cancel, done: make(chan struct{})}
	f.follower = kvevents.NewFollower(src, newSink(w, f), kvevents.Options{Context: w.f.o.zmq})
	go func() { // ended by unfollow, which run defers
		defer close(f.done)
		if err := f.follower.Run(ctx); err != nil && ctx.Err() == nil {
			w.f.pool(w.role).SetTrust(id, replica.Stale)
			f.say(kvevents.Stale, err.Error())
			w.f.o.log.Error("block events cannot be followed", "replica", string(id), "endpoint", src.Endpoint, "error", err)
		}
	}()
	return f
}

// unfollow stops all followers and waits for them.
func (w *watcher) unfollow() {
	w.mu.Lock()
	fs := w.followers
	w.followers = nil
	w.mu.Unlock()
	for _, f := range fs {
		f.stop()
	}
	for _, f := range fs {
		<-f.done
	}
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
