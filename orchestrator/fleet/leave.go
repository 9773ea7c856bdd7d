package fleet

import (
	"context"

	"github.com/tandem-router/tandem/internal/replica"
)

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
	for key, w := range f.watchers {
		if is := wanted[key]; is != nil && !w.relief.joining {
			s.named[serverName{w.role, is.name(w.role)}], s.first[w.role] = w, true
		}
	}
	for key, w := range f.watchers {
		if wanted[key] != nil && w.serves() {
			s.first[w.role] = false
		}
	}
	return s
}

// serves reports whether the server has joined and gives signs of life.
func (w *Watcher) serves() bool { return w.facts.joined() && w.Up() }

// join notes a server's account of itself, and removes the servers that stood in for it.
func (f *Fleet) join(w *Watcher, facts []replica.Facts) {
	f.keep.mu.Lock()
	w.relief.joining = true
	stays := w.relief.successor == nil && !w.relief.ofPool
	var before []*Watcher
	for _, other := range f.keep.watchers {
		if other.relief.successor == w || stays && other.relief.ofPool && other.role == w.role {
			before = append(before, other)
		}
	}
	f.keep.endingLocked(before)
	f.keep.mu.Unlock()
	end(before)
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.keep.removeLocked(before)
	w.relief.awaited.Store(false)
	w.facts.set(facts)
	w.outage.end()
	f.publishLocked()
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
		w.up.Store(false)
		w.client.Retire()
		w.forgetTokens()
		w.life.wake()
	}
}

// Hold keeps the watcher listening to the server for a request that runs on it, until [Endpoint.Release]. It
// returns false if the watcher listens no more.
func (e *Endpoint) Hold() bool {
	return e.w.facts.hold()
}

// Release ends a Hold.
func (e *Endpoint) Release() {
	if e.w.facts.release() {
		e.w.life.wake()
	}
}

// outlast listens to a server that is no longer watched until it has left and no request runs on it. It
// writes nothing to the pools, where others may have its replicas' names.
func (w *Watcher) outlast(ctx context.Context) {
	for failed := 0; w.facts.needed() && w.life.sleep(ctx, jitter(w.interval(failed))); {
		m, err := w.scrape(ctx)
		if err != nil {
			failed++
			continue
		}
		failed = 0
		w.scraped.leases.Store(w.scraped.leaseCounters(&m))
		w.fleet.processes.note(w.process, m.Started)
	}
}
