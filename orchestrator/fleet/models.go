package fleet

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// An engine can load and unload adapters while it runs (/v1/load_lora_adapter), and it does not announce
// this. It is asked regularly, and also after it answered that it does not know a model. The second interval
// is the least time between two questions, so that no client can make them a burden.
const (
	ModelsInterval      = 5 * time.Second
	LeastModelsInterval = time.Second
)

// ModelUnknown notes that a replica does not know a model that it should serve. Its watcher asks now for its
// models.
func (f *Fleet) ModelUnknown(id replica.ID) {
	if e := f.Endpoint(id); e != nil {
		e.w.due.todo.askModels.Store(true)
		e.w.life.wake()
	}
}

// askModels asks the server for its models, if it is time. It returns false if the server has another base
// model: all facts about the server are then void.
func (w *Watcher) askModels(ctx context.Context) bool {
	since := time.Since(w.due.listed)
	if since < LeastModelsInterval || since < ModelsInterval && !w.due.todo.askModels.Load() {
		return true
	}
	asked, cancel := context.WithTimeout(ctx, w.set.Load().probe)
	defer cancel()
	now, err := w.client.Models(asked)
	w.due.listed = time.Now()
	if err != nil {
		return true // whether it lives is for the scrapes to say
	}
	w.due.todo.askModels.Store(false)
	w.facts.mu.Lock()
	was := w.facts.known.facts[0]
	w.facts.mu.Unlock()
	if now.Model != was.Model || now.Root != was.Root || now.MaxModelLen != was.MaxModelLen {
		return false
	}
	if !slices.Equal(now.Models, was.Models) || !slices.Equal(now.Adapters, was.Adapters) ||
		!maps.Equal(now.AdapterRoots, was.AdapterRoots) {
		w.setModels(now)
	}
	return true
}

// setModels gives every rank the names that now lists.
func (w *Watcher) setModels(now replica.Facts) {
	w.facts.mu.Lock()
	facts := slices.Clone(w.facts.known.facts)
	w.facts.known.noteAdapters(facts[0].AdapterRoots, now.AdapterRoots, time.Now())
	for i := range facts {
		facts[i].Models, facts[i].Adapters = now.Models, now.Adapters
		facts[i].AdapterRoots = now.AdapterRoots
	}
	w.facts.known.facts = facts
	w.remakeLocked()
	w.facts.mu.Unlock()
	w.fleet.publish()
	w.log.Info("replica serves other models", "replica", w.Name(), "pool", w.role.String(), "models", now.Models)
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

// AdapterSince returns the time since which the replica's server is known to serve the adapter from its
// present path. Its weights before are unknown. ok is false if the server does not serve the adapter.
func (e *Endpoint) AdapterSince(name string) (since time.Time, ok bool) {
	e.w.facts.mu.Lock()
	defer e.w.facts.mu.Unlock()
	since, ok = e.w.facts.known.adapters[name]
	return since, ok
}
