package fleet

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
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

// modelList is when the server listed its models, and whether it has to list them again. It also keeps the
// addresses of blocks up to date.
type modelList struct {
	server *server
	facts  *facts
	kv     addresses
	// Whether the server may be used with these facts.
	unusable func(*replica.Facts) error

	due    atomic.Bool // the server did not know a model that it should serve
	listed time.Time   // of the watcher's goroutine alone
}

// ask asks the server for its models and addresses, if it is time. It reports whether names of models or
// adapters, or addresses, have changed. same is false if the server has another base model: all facts about
// the server are then void.
func (ms *modelList) ask(ctx context.Context) (changed, same bool) {
	was, needed := ms.facts.all(), ms.server.set.Load().locates()
	if now := ms.kv.again(ctx, was, ms.server.located(was[0].KV) == needed, ModelsInterval); now != nil {
		ms.facts.setAddresses(now)
		changed = true
		ms.server.log.Info("the addresses of a replica's blocks have changed", "replica", ms.server.Name(),
			"missing", now[0].NoHandoff)
	}
	names, same := ms.list(ctx)
	return changed || names, same
}

// list asks the server for its models, if it is time.
func (ms *modelList) list(ctx context.Context) (changed, same bool) {
	since := time.Since(ms.listed)
	if since < LeastModelsInterval || since < ModelsInterval && !ms.due.Load() {
		return false, true
	}
	asked, cancel := context.WithTimeout(ctx, ms.server.set.Load().probe)
	defer cancel()
	now, err := ms.server.client.Models(asked)
	ms.listed = time.Now()
	if err != nil {
		return false, true // whether it lives is for the scrapes to say
	}
	ms.due.Store(false)
	was := ms.facts.first()
	if now.Model != was.Model || now.Root != was.Root || now.MaxModelLen != was.MaxModelLen ||
		ms.unusable(&now) != nil {
		return false, false
	}
	if slices.Equal(now.Models, was.Models) && slices.Equal(now.Adapters, was.Adapters) &&
		maps.Equal(now.AdapterRoots, was.AdapterRoots) {
		return false, true
	}
	ms.facts.setModels(now)
	of := ms.server
	of.log.Info("replica serves other models", "replica", of.Name(), "pool", of.role.String(),
		"models", now.Models)
	return true, true
}
