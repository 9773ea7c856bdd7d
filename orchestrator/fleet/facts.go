package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// facts is what a server turned out to be, and the replicas that it is in the pools. Safe for concurrent use.
type facts struct {
	server   *server
	noEvents bool // no streams of events are followed

	mu       sync.Mutex // guards the following
	known    known
	requests requests
}

// known is what a server said of itself, by rank.
type known struct {
	facts   []replica.Facts
	members []replica.Replica // made of the facts and the configuration
	former  []replica.ID      // a name before, of each of members, "" for none
	// When the process began, in unix seconds, if the server had another one before; 0: not known.
	reborn float64
	// Since when each adapter is known to be served from where it is, without a break.
	adapters map[string]time.Time
}

// requests counts the requests that still run on a server after it has left the configuration. The server is
// listened to as long as there are any.
type requests struct {
	left    bool // it is in the pools no more
	running int
	unheard bool // it has left, no request runs there, and it is not listened to any more
}

// members returns a replica for each rank of the server; none before it has joined, or after it has left.
func (f *facts) members() []replica.Replica {
	members, _ := f.named()
	return members
}

// named returns the members, and of each a name that it had before.
func (f *facts) named() ([]replica.Replica, []replica.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests.left {
		return nil, nil
	}
	return f.known.members, f.known.former
}

// joined reports whether the server has ever reported its facts.
func (f *facts) joined() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known.facts) > 0
}

// unmeasured reports whether the engine could not tell its metrics when it was probed. Its start and its
// cache are then unknown.
func (f *facts) unmeasured() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known.facts) > 0 && f.known.facts[0].Started == 0
}

// restarted compares the process start times. For engines that do not tell their start, only the sequence of
// their events shows a restart.
func (f *facts) restarted(m engine.Metrics) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known.members) > 0 && f.known.members[0].Facts.Started > 0 && m.Started > 0 &&
		m.Started != f.known.members[0].Facts.Started
}

// first returns the facts about the first rank of a server that has joined.
func (f *facts) first() replica.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known.facts[0]
}

// all returns the facts about the ranks of a server that has joined. The caller must not change them.
func (f *facts) all() []replica.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known.facts
}

// setAddresses gives every rank the address of its blocks that now has.
func (f *facts) setAddresses(now []replica.Facts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known.facts = now
	f.remakeLocked()
}

// set notes the server's account of itself.
func (f *facts) set(of []replica.Facts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.known.facts; len(was) > 0 && len(of) > 0 && was[0].Started > 0 &&
		of[0].Started > was[0].Started {
		f.known.reborn = of[0].Started
	}
	f.known.facts = of
	if len(of) > 0 { // adapters count as served from now on: earlier weights are unknown
		f.known.noteAdapters(nil, of[0].AdapterRoots, time.Now())
	}
	f.remakeLocked()
}

// setModels gives every rank the names that now lists.
func (f *facts) setModels(now replica.Facts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := slices.Clone(f.known.facts)
	f.known.noteAdapters(of[0].AdapterRoots, now.AdapterRoots, time.Now())
	for i := range of {
		of[i].Models, of[i].Adapters = now.Models, now.Adapters
		of[i].AdapterRoots = now.AdapterRoots
	}
	f.known.facts = of
	f.remakeLocked()
}

// remake makes the replicas again, after a change of the server's settings.
func (f *facts) remake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remakeLocked()
}

// remakeLocked makes the replicas again, from the server's facts and the configuration.
func (f *facts) remakeLocked() {
	was := f.known.members
	f.known.members = f.replicasLocked(f.known.facts)
	former := make([]replica.ID, len(f.known.members))
	for i := range f.known.members {
		switch {
		case len(was) != len(f.known.members):
		case was[i].ID != f.known.members[i].ID:
			former[i] = was[i].ID
		default:
			former[i] = f.known.former[i]
		}
	}
	f.known.former = former
}

// replicasLocked makes a replica from the facts of each rank. The engine's block size and number of blocks
// count before the file's. In the pool, its events count before both.
func (f *facts) replicasLocked(of []replica.Facts) []replica.Replica {
	ms := make([]replica.Replica, len(of))
	set := f.server.set.Load()
	for i, fact := range of {
		fact.BlockSize, fact.Blocks = cmp.Or(fact.BlockSize,
			set.pool.BlockSize), cmp.Or(fact.Blocks, set.pool.Blocks)
		fact.Drafts = cmp.Or(fact.Drafts, set.pool.SpeculativeTokens)
		fact.AdapterRoots = withoutFolders(fact.AdapterRoots, &set.pool)
		ms[i] = replica.Replica{
			ID: f.id(i, len(of)), Role: f.server.role, URL: f.server.URL(), Host: f.server.host,
			Rank: fact.FirstRank + i, Place: f.place(), Facts: fact, Draining: set.drain, Revision: set.cfg.Revision,
			GatewayPort: set.cfg.GatewayPort,
		}
		if port := cmp.Or(set.cfg.PullPort, set.pullPort); port > 0 {
			ms[i].PullPort = port + ms[i].Rank // as vLLM binds it
		}
		ms[i].Facts.Events = f.eventsLocked(fact, i, len(of))
		switch located := f.server.located(fact.KV); {
		case !set.locates(): // a reload has changed the connector
			ms[i].Facts.KV, ms[i].Facts.NoHandoff = replica.KVAddress{}, ""
		case !located && fact.NoHandoff == "":
			ms[i].Facts.NoHandoff = "it has not been asked yet where its blocks are"
		}
		if set.writtenAt[0] > 0 {
			ms[i].Facts.Reborn = f.known.reborn
		}
	}
	return ms
}

func (f *facts) id(i, n int) replica.ID {
	if n == 1 {
		return replica.ID(f.server.Name())
	}
	return replica.ID(f.server.Name() + "/dp" + strconv.Itoa(i))
}

// place fills the host from the URL, since two replicas at one address share a host.
func (f *facts) place() replica.Place {
	p := replica.Place(f.server.set.Load().cfg.Place)
	if p.Host == "" {
		p.Host = f.server.host
	}
	return p
}

// eventsLocked returns the event source of a rank to follow. The configuration's endpoint comes first, then
// the engine's own. ranks is the number of ranks of the server.
func (f *facts) eventsLocked(fact replica.Facts, rank, ranks int) replica.EventSource {
	set := f.server.set.Load()
	switch e := set.cfg.Events; {
	case set.pool.Index != config.IndexEvents || f.noEvents:
		return replica.EventSource{}
	case strings.HasPrefix(e.Endpoint, "/") && ranks > 1:
		return replica.EventSource{} // one stream for all ranks, which does not tell the ranks apart
	case e.Endpoint != "":
		e = e.OfRank(rank)
		return engine.EventSource(f.server.host, e.Endpoint, e.Replay, e.Topic)
	}
	return fact.Events
}

// noteAdapters notes since when each adapter is served from its present path. was and is are the earlier and
// the present paths by adapter.
func (k *known) noteAdapters(was, is map[string]string, now time.Time) {
	since := make(map[string]time.Time, len(is))
	for name, root := range is {
		since[name] = now
		if before, there := was[name]; there && before == root {
			since[name] = k.adapters[name]
		}
	}
	k.adapters = since
}

// adapterSince returns the time since which the server is known to serve the adapter from its present path.
func (f *facts) adapterSince(name string) (since time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, ok = f.known.adapters[name]
	return since, ok
}

// hold counts a request that runs on the server. It returns false if the server is not listened to any more.
func (f *facts) hold() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests.unheard {
		return false
	}
	f.requests.running++
	return true
}

// release ends a hold. It reports whether that was the last one on a server that has left.
func (f *facts) release() (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.running--
	return f.requests.running == 0 && f.requests.left
}

// leave notes that the server is not in the pools any more.
func (f *facts) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.left = true
}

// needed reports whether the watcher must still listen to the server. Once it need not, [Endpoint.Hold]
// fails.
func (f *facts) needed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.unheard = f.requests.left && f.requests.running == 0
	return !f.requests.unheard
}
