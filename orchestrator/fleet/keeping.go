package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

// keeping is the watched servers, and whether a new watcher may still start.
type keeping struct {
	mu       sync.Mutex // guards the following
	watchers map[serverKey]*Watcher
	ending   map[*Watcher]bool // no longer watched, and published until they are replaced
	sorted   []*Watcher        // all of both, prefill first, in the order of the file; replaced whole
	summed   bool              // the log has the line that every server was asked
	ctx      context.Context   // of Run; nil before
	ended    bool              // no watcher is started any more
	aliases  []string          // names that clients may use in the place of models
	wg       sync.WaitGroup    // of the watchers
}

// beginLocked says that Run has begun, under ctx.
func (f *keeping) beginLocked(ctx context.Context) { f.ctx = ctx }

// sortLocked puts the watchers, with fresh ones, into the order of cfg.
func (f *keeping) sortLocked(cfg *config.Config, fresh []*Watcher) {
	for i := range cfg.Pools.Prefill.Replicas {
		f.watchers[serverKey{replica.Prefill, cfg.Pools.Prefill.Replicas[i].URL}].relief.order = i
	}
	for i := range cfg.Pools.Decode.Replicas {
		f.watchers[serverKey{replica.Decode, cfg.Pools.Decode.Replicas[i].URL}].relief.order = i
	}
	f.sorted = slices.Concat(f.sorted, fresh)
	slices.SortFunc(f.sorted, func(a, b *Watcher) int {
		return cmp.Or(int(a.role)-int(b.role), a.relief.order-b.relief.order, strings.Compare(a.key.url, b.key.url))
	})
}

// all returns all watchers, prefill first, in the order of the file. The list must not be changed.
func (f *keeping) all() []*Watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sorted
}

func (f *keeping) watched(key serverKey) *Watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watchers[key]
}

// A server leaves in three steps. First its watcher stops, so that nothing from the server enters the pools.
// Then the pools and new requests learn that it is gone. Last, it is listened to as long as earlier requests
// run on it. Those requests must know whether the server stands still, and may have to ask it.

// leaving takes out the watchers that end now. The caller has to [end] and to remove them. A server that has
// left the configuration stays if another server takes its place in the file and has not joined yet. It
// stands in for the new server until then.
func (f *keeping) leaving(wanted map[serverKey]*settings, fresh []*Watcher) []*Watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.successorsLocked(wanted, fresh)
	var left []*Watcher
	awaited := map[*Watcher]bool{}
	for key, w := range f.watchers {
		w.relief.successor, w.relief.ofPool = nil, false
		if wanted[key] != nil {
			continue
		}
		switch is := next.named[serverName{w.role, w.Name()}]; {
		case is != nil && w.facts.joined():
			w.relief.successor, awaited[is] = is, true
		case next.first[w.role] && w.serves():
			w.relief.ofPool = true
		default:
			left = append(left, w)
		}
	}
	for _, w := range next.named {
		w.relief.awaited.Store(awaited[w])
	}
	f.endingLocked(left)
	return left
}

// successors are the servers of a configuration that have not joined yet.
type successors struct {
	named map[serverName]*Watcher
	first map[replica.Role]bool // whether the first server of the pool to serve is still to join
}

type serverName struct {
	role replica.Role
	name string
}

func (f *keeping) successorsLocked(wanted map[serverKey]*settings, fresh []*Watcher) (s successors) {
	s.named, s.first = map[serverName]*Watcher{}, map[replica.Role]bool{}
	for _, w := range fresh {
		s.named[serverName{w.role, w.Name()}], s.first[w.role] = w, true
	}
	served := map[replica.Role]bool{}
	for key, w := range f.watchers {
		is := wanted[key]
		switch {
		case is == nil:
		case !w.relief.joining:
			s.named[serverName{w.role, is.name(w.role)}], s.first[w.role] = w, true
		case !served[w.role]:
			served[w.role] = w.serves()
		}
	}
	for role := range served {
		s.first[role] = s.first[role] && !served[role]
	}
	return s
}

// endingLocked keeps ws published, and out of reach of the next reload.
func (f *keeping) endingLocked(ws []*Watcher) {
	for _, w := range ws {
		delete(f.watchers, w.key)
		f.ending[w] = true
	}
}

// end stops watching ws, and waits until nothing of ws can enter the pools any more. The caller must not
// hold the fleet's mutex.
func end(ws []*Watcher) {
	for _, w := range ws {
		if w.life.stop != nil {
			w.life.stop()
			<-w.life.gone
		}
	}
}

// removeLocked takes out ws: the next publish leaves them out.
func (f *keeping) removeLocked(ws []*Watcher) {
	for _, w := range ws {
		delete(f.ending, w)
		w.facts.leave()
		w.pulse.up.Store(false)
		w.client.Retire()
		w.forgetTokens()
		w.life.wake()
	}
	f.sorted = slices.DeleteFunc(slices.Clone(f.sorted), func(w *Watcher) bool {
		return slices.Contains(ws, w)
	})
}

// hasLocked reports whether some watcher watches url.
func (f *keeping) hasLocked(url string) bool {
	return slices.ContainsFunc(f.sorted, func(w *Watcher) bool { return w.key.url == url })
}

// triedLocked reports whether each server has answered, or was asked in vain.
func (f *keeping) triedLocked() bool {
	for _, w := range f.watchers {
		if !w.tried() {
			return false
		}
	}
	return true
}

// bothLocked reports whether both pools have servers.
func (f *keeping) bothLocked() bool {
	var n [2]int
	for _, w := range f.watchers {
		n[w.role-replica.Prefill]++
	}
	return n[0] > 0 && n[1] > 0
}

// sumUpLocked logs one line when every server has been asked, and again after a reload with new servers.
func (f *keeping) sumUpLocked(tried bool, log *slog.Logger) {
	if tried == f.summed {
		return
	}
	if f.summed = tried; !tried || len(f.watchers) == 0 {
		return
	}
	var joined, all [2]int
	var missing []string
	events := 0
	for _, w := range f.sorted {
		side := w.role - replica.Prefill
		if all[side]++; !w.facts.joined() {
			missing = append(missing, w.Name())
			continue
		}
		joined[side]++
		if slices.ContainsFunc(w.Members(), func(m replica.Replica) bool { return m.Facts.Events.Endpoint != "" }) {
			events++
		}
	}
	log.Info("every replica was asked", "prefill", fmt.Sprintf("%d of %d", joined[0], all[0]),
		"decode", fmt.Sprintf("%d of %d", joined[1], all[1]), "with_events", events,
		"missing", strings.Join(missing, ","))
}

// followsLocked reports whether the configuration wants the events of the engines of a pool to be followed.
func (f *keeping) followsLocked(role replica.Role) bool {
	at := slices.IndexFunc(f.sorted, func(w *Watcher) bool { return w.role == role })
	return at >= 0 && f.sorted[at].set.Load().pool.Index == config.IndexEvents
}
