package orchestrator

import (
	"context"
	"slices"
	"time"

	"tandem/internal/openai"
	"tandem/internal/replica"
)

// Adapters come and go while an engine runs (/v1/load_lora_adapter), and it does not tell: it is asked every so often, and when it answered that it does not
// know a model, but not more often than a client could make it a burden.
const (
	modelsEvery = 5 * time.Second
	modelsAtOdd = time.Second
)

// forgot is told by a request that a replica did not know a model that it should serve: its watcher asks it now what it serves.
func (f *fleet) forgot(id replica.ID) {
	if r := f.to(id); r != nil {
		r.w.doubted.Store(true)
		r.w.lookNow()
	}
}

// relist asks the server what it serves, if it is time to. It reports false if another base model is served, so that nothing that was known of it holds.
func (w *watcher) relist(ctx context.Context) bool {
	since := time.Since(w.listed)
	if since < modelsAtOdd || since < modelsEvery && !w.doubted.Load() {
		return true
	}
	asked, cancel := context.WithTimeout(ctx, w.set.Load().probe)
	defer cancel()
	now, err := w.client.Models(asked)
	w.listed = time.Now()
	if err != nil {
		return true // whether it lives is for the scrapes to say
	}
	w.doubted.Store(false)
	w.mu.Lock()
	was := w.told[0]
	w.mu.Unlock()
	if now.Model != was.Model || now.Root != was.Root || now.MaxModelLen != was.MaxModelLen {
		return false
	}
	if !slices.Equal(now.Models, was.Models) || !slices.Equal(now.Adapters, was.Adapters) {
		w.serves(now)
	}
	return true
}

// serves makes the names that now lists those of every rank.
func (w *watcher) serves(now replica.Facts) {
	w.mu.Lock()
	told := slices.Clone(w.told)
	for i := range told {
		told[i].Models, told[i].Adapters = now.Models, now.Adapters
	}
	w.told = told
	w.makeLocked()
	w.mu.Unlock()
	w.f.publish()
	w.f.o.log.Info("replica serves other models", "replica", w.name(), "pool", w.role.String(), "models", now.Models)
}

// modelOr is the model that a request names, or else the only one that the decode replicas serve: an engine answers a request that names none with its own.
// Where there are several, one would be as wrong as the other.
func (q *request) modelOr(named string) (string, *failure) {
	if named != "" {
		return named, nil
	}
	only := ""
	for _, r := range *q.o.fleet.reach.Load() {
		switch own := r.member.Facts.Model; {
		case r.w.role != replica.Decode || own == only:
		case only != "":
			return "", badRequest(&openai.BadRequest{Message: "Name a model: this router serves several.", Param: "model"})
		default:
			only = own
		}
	}
	return only, nil
}
