package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// Watchers returns a watcher for each replica of the configuration, prefill first, in the order of the file.
// If a new server has not joined yet, it returns the watcher of the old server that stands in.
func (f *Fleet) Watchers() []*Watcher {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.keep.sorted), func(w *Watcher) bool {
		return w.relief.awaited.Load() ||
			f.keep.ending[w]
	})
}

// Endpoint returns the way to a replica, also by a name that it had before; nil when it has left.
func (f *Fleet) Endpoint(id replica.ID) *Endpoint {
	all := f.Endpoints()
	if e := all[id]; e != nil {
		return e
	}
	return all[(*f.pub.former.Load())[id]]
}

// Endpoints returns the ways to all replicas. They must not be changed.
func (f *Fleet) Endpoints() map[replica.ID]*Endpoint { return *f.pub.endpoints.Load() }

// MayTry reports whether trials may be made with the replica: it is reachable and not drained.
func (f *Fleet) MayTry(id replica.ID) bool {
	e := f.Endpoint(id)
	return e != nil && e.Up() && !e.Member.Draining
}

// Failed notes that a request to the replica failed with err. If no connection was possible, the replica
// takes no requests until its watcher, which looks at once, has reached it.
func (f *Fleet) Failed(id replica.ID, err error) {
	if e := f.Endpoint(id); e != nil && engine.Unreachable(err) {
		e.w.pool.SetHealthy(id, false, "cannot be reached")
		e.w.life.wake()
	}
}

// BrokeOff notes that the replica broke an answer off: its watcher looks at once whether the server answers.
func (f *Fleet) BrokeOff(id replica.ID) {
	if e := f.Endpoint(id); e != nil {
		e.w.life.wake()
	}
}

// Any returns some usable engine that serves model ("" for any), or nil if there is none. It prefers an
// engine that is not being drained, then one that owes no answer, and then a prefill replica. skip, if not
// nil, leaves engines out.
func (f *Fleet) Any(model string, skip func(*Endpoint) bool) *Endpoint {
	turn := f.pub.turn.Add(1)
	e := f.anyAt(model, turn, skip)
	if e != nil && e.Owes(time.Now()) {
		return cmp.Or(f.anyAt(model, turn, promptly(skip)), e)
	}
	return e
}

// Another returns an engine on another server than e that serves model and owes no answer, or nil if there
// is none. skip, if not nil, leaves engines out.
func (f *Fleet) Another(e *Endpoint, model string, skip func(*Endpoint) bool) *Endpoint {
	return f.anyAt(model, f.pub.turn.Add(1), promptly(func(o *Endpoint) bool {
		return o.w.key.url == e.w.key.url || skip != nil && skip(o)
	}))
}

func (f *Fleet) anyAt(model string, turn uint64, skip func(*Endpoint) bool) *Endpoint {
	for _, draining := range []bool{false, true} {
		for _, role := range roles {
			if e := f.anyOf(role, model, turn, draining, skip); e != nil {
				return e
			}
		}
	}
	return nil
}

// AnyDecode returns a usable decode replica, or nil if there is none. It takes a replica that is being
// drained only if there is no other. The choice from the same replicas is always the same. skip, if not nil,
// leaves replicas out.
func (f *Fleet) AnyDecode(skip func(*Endpoint) bool) *Endpoint {
	return cmp.Or(f.anyOf(replica.Decode, "", 0, false, skip), f.anyOf(replica.Decode, "", 0, true, skip))
}

func (f *Fleet) anyOf(
	role replica.Role, model string, turn uint64, draining bool, skip func(*Endpoint) bool,
) *Endpoint {
	var found *Endpoint
	best := uint64(0)
	for _, e := range f.Endpoints() {
		if e.Member.Role != role || e.Member.Draining != draining || !e.Up() ||
			model != "" && !e.Member.Serves(model) || skip != nil && skip(e) {
			continue
		}
		if score := mix(turn, string(e.Member.ID)); found == nil || score > best {
			found, best = e, score
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

// Asleep reports whether the replica is there, and its engine is in sleep mode.
func (f *Fleet) Asleep(id replica.ID) bool {
	e := f.Endpoint(id)
	return e != nil && e.Asleep()
}

// Drains are the servers that are drained on command. Safe for concurrent use.
func (f *Fleet) Drains() []Drained { return *f.pub.drained.Load() }

// Find returns the watchers of the server with this name or URL: two for a server in both pools. The scheme
// of a URL may be left out. The error says what else to write.
func (f *Fleet) Find(name string) ([]*Watcher, error) {
	var found []*Watcher
	var names []string
	for _, w := range f.keep.all() {
		set := w.set.Load()
		_, address, _ := strings.Cut(w.key.url, "://")
		url := strings.TrimRight(name, "/")
		if name == set.id || name == set.name(w.role) || url == w.key.url || url == address {
			found = append(found, w)
		}
		if !slices.Contains(names, set.id) {
			names = append(names, set.id)
		}
		if rank, is := strings.CutPrefix(name, w.Name()+"/dp"); is && rank != "" {
			return nil, fmt.Errorf("%s is one rank of %s, whose ranks stop together: name %s", name, w.Name(),
				set.id)
		}
	}
	if len(found) > 0 {
		return f.sameServer(found), nil
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return nil, fmt.Errorf("no replica has the name or URL %q; there are %s", name,
		strings.Join(names, ", "))
}

// sameServer adds the watcher of the other pool for servers that are in both pools.
func (f *Fleet) sameServer(some []*Watcher) []*Watcher {
	for _, w := range f.keep.all() {
		same := func(o *Watcher) bool { return o.key.url == w.key.url }
		if slices.ContainsFunc(some, same) && !slices.Contains(some, w) {
			some = append(some, w)
		}
	}
	return some
}

// ModelUnknown notes that a replica does not know a model that it should serve. Its watcher asks now for its
// models.
func (f *Fleet) ModelUnknown(id replica.ID) {
	if e := f.Endpoint(id); e != nil {
		e.w.models.due.Store(true)
		e.w.life.wake()
	}
}
