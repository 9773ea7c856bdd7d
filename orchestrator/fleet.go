package orchestrator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/config"
	"tandem/internal/engine"
	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/internal/roster"
)

// fleet is every engine server that the configuration names, each with a watcher, and the members of the pools that they turned out to be.
type fleet struct {
	o *Orchestrator

	// reach maps a replica to the client of its server; replaced whole, read by every request.
	reach atomic.Pointer[map[replica.ID]*reach]
	turn  atomic.Uint64 // round robin for questions that any engine can answer

	mu       sync.Mutex // guards the following
	watchers map[serverKey]*watcher
	ctx      context.Context // of Run; nil before
	wg       sync.WaitGroup  // of the watchers
}

// reach is the way to one replica.
type reach struct {
	member replica.Replica
	client *engine.Client
	rank   string // value of X-data-parallel-rank, "" for a server of one rank
	w      *watcher
}

// serverKey is what makes a watched server the same across a reload: anything else that changes means a new watcher.
type serverKey struct {
	role   replica.Role
	url    string
	events config.Events
	block  int
	blocks int
	auth   string
	poll   time.Duration
	tls    config.ClientTLS
	place  config.Place
	name   string
}

// knower is what both pools do with what is learned about their members.
type knower interface {
	SetIndexing(x roster.Indexing)
	ToldBlockSize(id replica.ID) (told, expected int)
	BlockSize() int
	SetMembers(ms []replica.Replica, now time.Time)
	Apply(id replica.ID, b *kv.Batch) kv.Applied
	Forget(id replica.ID)
	SetTrust(id replica.ID, t replica.Trust)
	Observe(id replica.ID, l replica.Load, now time.Time)
	SetHealthy(id replica.ID, ok bool, reason string)
}

func newFleet(o *Orchestrator) *fleet {
	f := &fleet{o: o, watchers: map[serverKey]*watcher{}}
	f.reach.Store(&map[replica.ID]*reach{})
	return f
}

func (f *fleet) pool(role replica.Role) knower {
	if role == replica.Prefill {
		return f.o.prefill
	}
	return f.o.decode
}

// run starts the watchers, those of later reloads too, and waits for all of them when ctx ends.
func (f *fleet) run(ctx context.Context) error {
	f.mu.Lock()
	if f.ctx != nil {
		f.mu.Unlock()
		return errors.New("the fleet runs already")
	}
	f.ctx = ctx
	for _, w := range f.watchers {
		f.startLocked(w)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.wg.Wait()
	for _, w := range f.watchers {
		w.client.Close()
	}
	return nil
}

func (f *fleet) startLocked(w *watcher) {
	ctx, cancel := context.WithCancel(f.ctx)
	w.stop = cancel
	f.wg.Go(func() {
		defer close(w.gone)
		w.run(ctx)
	})
}

// apply makes the watchers those of cfg. Servers that stay keep their state, streams and connections; requests on servers that go run to their end.
func (f *fleet) apply(cfg *config.Config) error {
	wanted, err := f.wanted(cfg)
	if err != nil {
		return err
	}
	f.o.prefill.SetIndexing(indexing(cfg.Pools.Prefill, cfg.Tokenizer))
	f.o.decode.SetIndexing(indexing(cfg.Pools.Decode, cfg.Tokenizer))
	f.mu.Lock()
	var left []*watcher
	for key, w := range f.watchers {
		if wanted[key] == nil {
			delete(f.watchers, key)
			left = append(left, w)
		}
	}
	for key, w := range wanted {
		if same := f.watchers[key]; same != nil {
			w.client.Close()
			same.setIndex(w.pool.Index)
			continue
		}
		f.watchers[key] = w
		if f.ctx != nil {
			f.startLocked(w)
		}
	}
	f.mu.Unlock()
	for _, w := range left {
		w.leave()
	}
	f.publish()
	return nil
}

// indexing is what of the configuration concerns a pool's index.
func indexing(p config.Pool, t config.Tokenizer) roster.Indexing {
	mode := map[string]roster.Mode{config.IndexEvents: roster.Events, config.IndexApproximate: roster.Approximate, config.IndexOff: roster.Off}[p.Index]
	return roster.Indexing{Mode: mode, ChunkBytes: t.ChunkBytes, CharsPerToken: t.CharsPerToken}
}

// wanted makes a watcher for every server of cfg; those that are watched already are thrown away again by the caller.
func (f *fleet) wanted(cfg *config.Config) (map[serverKey]*watcher, error) {
	out := map[serverKey]*watcher{}
	for _, side := range []struct {
		role replica.Role
		pool config.Pool
	}{{replica.Prefill, cfg.Pools.Prefill}, {replica.Decode, cfg.Pools.Decode}} {
		tlsConfig, err := cfg.EngineTLS(side.pool)
		if err != nil {
			return nil, err
		}
		for i, r := range side.pool.Replicas {
			w, err := f.newWatcher(side.role, side.pool, r, tlsConfig, cfg)
			if err != nil {
				return nil, err
			}
			w.order = i
			out[w.key] = w
		}
	}
	return out, nil
}

func (f *fleet) newWatcher(role replica.Role, pool config.Pool, r config.Replica, tlsConfig *tls.Config, cfg *config.Config) (*watcher, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	client, err := engine.New(engine.Options{
		URL: r.URL, TLS: tlsConfig, APIKey: pool.APIKey.Reveal(), Dial: f.o.opt.Dial, DialTimeout: cfg.Timeouts.Connect,
	})
	if err != nil {
		return nil, err
	}
	return &watcher{
		f: f, client: client, cfg: r, pool: pool, probeTimeout: cfg.Timeouts.Probe, failures: cfg.Health.Failures, role: role, host: u.Hostname(),
		key:  serverKey{role, r.URL, r.Events, pool.BlockSize, pool.Blocks, pool.APIKey.Reveal(), pool.PollInterval, pool.TLS, r.Place, r.ID()},
		kick: make(chan struct{}, 1), gone: make(chan struct{}), reason: notProbed, index: pool.Index,
		pulse: pulse{usual: 2*cmp.Or(pool.PollInterval, time.Second) + time.Second},
	}, nil
}

// publish tells the pools and the requests who is there now.
func (f *fleet) publish() {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[replica.ID]*reach{}
	members := map[replica.Role][]replica.Replica{}
	for _, w := range f.sortedLocked() {
		for _, m := range w.members() {
			members[w.role] = append(members[w.role], m)
			r := &reach{member: m, client: w.client, w: w}
			if m.Pinned() {
				r.rank = strconv.Itoa(m.Rank - m.Facts.FirstRank)
			}
			all[m.ID] = r
		}
	}
	f.reach.Store(&all)
	f.o.prefill.SetMembers(members[replica.Prefill], now)
	f.o.decode.SetMembers(members[replica.Decode], now)
	f.o.queue.wake()
}

func (f *fleet) sortedLocked() []*watcher {
	return slices.SortedFunc(maps.Values(f.watchers), func(a, b *watcher) int {
		if a.role != b.role {
			return int(a.role) - int(b.role)
		}
		return a.order - b.order
	})
}

// list returns the watchers, prefill first, in the order of the file.
func (f *fleet) list() []*watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sortedLocked()
}

// to returns the way to a replica, nil when it has left.
func (f *fleet) to(id replica.ID) *reach { return (*f.reach.Load())[id] }

// failed is told by a request that a replica could not be reached at all. The watcher looks at once.
func (f *fleet) failed(id replica.ID, err error) {
	if r := f.to(id); r != nil && engine.Unreachable(err) {
		f.pool(r.w.role).SetHealthy(id, false, "cannot be reached")
		r.w.lookNow()
	}
}

// any returns some healthy engine that serves model ("" for any), a prefill replica if there is one; nil when there is none.
// skip, if not nil, leaves some out.
func (f *fleet) any(model string, skip func(*reach) bool) *reach {
	turn := f.turn.Add(1)
	for _, role := range []replica.Role{replica.Prefill, replica.Decode} {
		if r := f.anyOf(role, model, turn, skip); r != nil {
			return r
		}
	}
	return nil
}

func (f *fleet) anyOf(role replica.Role, model string, turn uint64, skip func(*reach) bool) *reach {
	var found *reach
	best := uint64(0)
	for _, r := range *f.reach.Load() {
		if r.w.role != role || !r.w.up.Load() || model != "" && !r.member.Serves(model) || skip != nil && skip(r) {
			continue
		}
		if score := mix(turn, string(r.member.ID)); found == nil || score > best {
			found, best = r, score
		}
	}
	return found
}

// mix spreads turns over names without keeping a list: highest random weight.
func mix(turn uint64, name string) uint64 {
	h := turn * 0x9e3779b97f4a7c15
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return h ^ h>>29
}
