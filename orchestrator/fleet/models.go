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
	was := w.facts.first()
	if now.Model != was.Model || now.Root != was.Root || now.MaxModelLen != was.MaxModelLen {
		return false
	}
	if !slices.Equal(now.Models, was.Models) || !slices.Equal(now.Adapters, was.Adapters) ||
		!maps.Equal(now.AdapterRoots, was.AdapterRoots) {
		w.facts.setModels(now)
		w.fleet.publish()
		w.log.Info("replica serves other models", "replica", w.Name(), "pool", w.role.String(), "models", now.Models)
	}
	return true
}

// AdapterSince returns the time since which the replica's server is known to serve the adapter from its
// present path. Its weights before are unknown. ok is false if the server does not serve the adapter.
func (e *Endpoint) AdapterSince(name string) (since time.Time, ok bool) {
	return e.w.facts.adapterSince(name)
}
