package orchestrator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	o         *Orchestrator
	processes processes
	trust     map[replica.Role]*tls.Config // of the configuration in force; of apply alone

	// reach maps a replica to the client of its server; replaced whole, read by every request.
	reach  atomic.Pointer[map[replica.ID]*reach]
	former atomic.Pointer[map[replica.ID]replica.ID] // names that replicas had before; replaced whole
	turn   atomic.Uint64                             // round robin for questions that any engine can answer

	mu       sync.Mutex // guards the following
	watchers map[serverKey]*watcher
	ending   map[*watcher]bool // no longer watched, and published until they are replaced
	ctx      context.Context   // of Run; nil before
	ended    bool              // nobody is started any more
	wg       sync.WaitGroup    // of the watchers
}

// knower is what both pools do with what is learned about their members.
type knower interface {
	SetIndexing(x roster.Indexing)
	ReportedBlockSize(id replica.ID) (reported, expected int)
	BlockSize() int
	SetMembers(ms []replica.Replica, now time.Time)
	Apply(id replica.ID, b *kv.Batch) kv.Applied
	Forget(id replica.ID)
	SetTrust(id replica.ID, t replica.Trust)
	Observe(id replica.ID, l replica.Load, now time.Time)
	SetHealthy(id replica.ID, ok bool, reason string)
	Slow(id replica.ID, held bool) (cause string, known bool)
}

func newFleet(o *Orchestrator) *fleet {
	f := &fleet{o: o, watchers: map[serverKey]*watcher{}, ending: map[*watcher]bool{}}
	f.reach.Store(&map[replica.ID]*reach{})
	f.former.Store(&map[replica.ID]replica.ID{})
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
	f.mu.Lock()
	f.ended = true // a reload that comes now starts nobody
	f.mu.Unlock()
	f.wg.Wait()
	for _, w := range f.all() {
		w.client.Close()
	}
	return nil
}

func (f *fleet) startLocked(w *watcher) {
	if f.ended {
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	w.stop = cancel
	f.wg.Go(func() {
		f.o.panics.KeepRunning(ctx, "watcher", func() { w.run(ctx) })
		close(w.gone)
		f.o.panics.KeepRunning(f.ctx, "watcher", func() { w.linger(f.ctx) })
	})
}

// apply makes the watchers those of cfg. Servers that stay keep their state, blocks, streams and connections whatever is said of them now; requests on servers that
// go run to their end. A replica that has moved to another address is served by the old one until the new one has joined.
func (f *fleet) apply(cfg *config.Config) error {
	wanted, err := f.wanted(cfg)
	if err != nil {
		return err
	}
	var fresh []*watcher
	for key, s := range wanted {
		if f.watched(key) == nil {
			w, err := f.newWatcher(key, s)
			if err != nil {
				return err
			}
			fresh = append(fresh, w)
		}
	}
	f.o.prefill.SetIndexing(indexing(cfg.Pools.Prefill, cfg.Tokenizer))
	f.o.decode.SetIndexing(indexing(cfg.Pools.Decode, cfg.Tokenizer))
	leaving := f.leaving(wanted, fresh)
	end(leaving)
	f.mu.Lock()
	f.removeLocked(leaving)
	for key, w := range f.watchers {
		if s := wanted[key]; s != nil {
			w.configure(s)
		}
	}
	for _, w := range fresh {
		f.watchers[w.key] = w
		if f.ctx != nil {
			f.startLocked(w)
		}
	}
	f.publishLocked()
	f.mu.Unlock()
	f.forgetProcesses()
	return nil
}

// forgetProcesses drops what is remembered of processes that nobody watches, where it is not worth it.
func (f *fleet) forgetProcesses() {
	urls := map[string]bool{}
	for _, w := range f.all() {
		urls[w.key.url] = true
	}
	f.processes.keep(urls)
}

// indexing is what of the configuration concerns a pool's index.
func indexing(p config.Pool, t config.Tokenizer) roster.Indexing {
	mode := map[string]roster.Mode{config.IndexEvents: roster.Events, config.IndexApproximate: roster.Approximate, config.IndexOff: roster.Off}[p.Index]
	return roster.Indexing{Mode: mode, ChunkBytes: t.ChunkBytes, CharsPerToken: t.CharsPerToken}
}

// publish tells the pools and the requests who is there now.
func (f *fleet) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishLocked()
}

func (f *fleet) publishLocked() {
	now := time.Now()
	all, former := map[replica.ID]*reach{}, map[replica.ID]replica.ID{}
	members := map[replica.Role][]replica.Replica{}
	var renamed []renaming
	for _, w := range f.sortedLocked() {
		ms, before := w.named()
		for i, m := range ms {
			members[w.role] = append(members[w.role], m)
			r := &reach{member: m, client: w.client, w: w}
			if m.Pinned() {
				r.rank = strconv.Itoa(m.Rank - m.Facts.FirstRank)
			}
			all[m.ID] = r
			if before[i] != "" {
				former[before[i]] = m.ID
			}
		}
		renamed = w.holdRenamed(renamed)
	}
	was := *f.reach.Swap(&all)
	f.former.Store(&former)
	f.o.prefill.SetMembers(members[replica.Prefill], now)
	f.o.decode.SetMembers(members[replica.Decode], now)
	for _, r := range renamed {
		r.end()
	}
	f.renameLocked(was, all)
	member := func(id replica.ID) bool { return all[id] != nil }
	f.o.planner.Outliers().Keep(member)
	f.o.telling.keep(member)
	f.judgePairsLocked()
	f.o.queue.wake()
}

// renameLocked lets what is known of a replica beside the pools be known of it under the name that it has now.
func (f *fleet) renameLocked(was, now map[replica.ID]*reach) {
	renames := replica.RenamesOf(enginesOf(was), enginesOf(now))
	if len(renames) == 0 {
		return
	}
	f.o.planner.Outliers().Rename(renames)
	f.o.telling.rename(renames)
	for _, w := range f.watchers {
		w.states.rename(renames)
	}
}

// engineOf tells a replica from the others of the fleet, whatever it is called.
type engineOf struct {
	w    *watcher
	rank int
}

func enginesOf(all map[replica.ID]*reach) map[replica.ID]engineOf {
	engines := make(map[replica.ID]engineOf, len(all))
	for id, r := range all {
		engines[id] = engineOf{r.w, r.member.Rank}
	}
	return engines
}

// sortedLocked returns all watchers, prefill first, in the order of the file.
func (f *fleet) sortedLocked() []*watcher {
	all := slices.AppendSeq(slices.Collect(maps.Values(f.watchers)), maps.Keys(f.ending))
	slices.SortFunc(all, func(a, b *watcher) int {
		return cmp.Or(int(a.role)-int(b.role), a.set.Load().order-b.set.Load().order, strings.Compare(a.key.url, b.key.url))
	})
	return all
}

func (f *fleet) all() []*watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sortedLocked()
}

// list returns a watcher for each replica of the configuration, prefill first, in the order of the file: that of the old server where the new one has not
// joined yet.
func (f *fleet) list() []*watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(f.sortedLocked(), func(w *watcher) bool { return w.awaited.Load() || f.ending[w] })
}

func (f *fleet) watched(key serverKey) *watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watchers[key]
}

// to returns the way to a replica, nil when it has left.
func (f *fleet) to(id replica.ID) *reach {
	all := *f.reach.Load()
	if r := all[id]; r != nil {
		return r
	}
	return all[(*f.former.Load())[id]]
}

// reachable reports whether the replica is there and was heard of lately.
func (f *fleet) reachable(id replica.ID) bool {
	r := f.to(id)
	return r != nil && r.w.up.Load()
}

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
