package orchestrator

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// A client may name an alias instead of a model. When the request arrives, the alias leads to one of its
// models. Retries, and the rest of a broken stream, use the same model.

// aliases are the aliases of a configuration by their names. Immutable.
type aliases map[string]*config.Alias

func aliasesOf(cfg *config.Config) aliases {
	all := aliases{}
	for i := range cfg.Aliases {
		all[cfg.Aliases[i].Name] = &cfg.Aliases[i]
	}
	return all
}

// chosen returns the model that requests with a key go to. By weighted rendezvous hashing, equal keys go to
// one model, at every router. A changed weight moves as few keys as possible.
func chosen(a *config.Alias, key string) (model string) {
	least := math.Inf(1)
	for _, t := range a.To {
		if t.Weight <= 0 {
			continue
		}
		sum := xxhash.Sum64String(a.Name + "\x00" + t.Model + "\x00" + key)
		share := (float64(sum>>11) + 0.5) / (1 << 53) // above 0 and below 1
		if at := -math.Log(share) / float64(t.Weight); at < least {
			least, model = at, t.Model
		}
	}
	return model
}

// behindAlias returns the model behind the alias that the client named. If the client named a model, it
// returns this name.
func behindAlias(q *request, asked string) string {
	a := q.aliases[asked]
	if a == nil {
		return asked
	}
	model := chosen(a, stickyKey(q))
	if a.Fallback != "" && !usable(q.fleet, model, q.cfg.Local) && usable(q.fleet, a.Fallback, q.cfg.Local) {
		model = a.Fallback
	}
	q.alias = asked
	return model
}

// modelAt returns the model of a request that only the given engine can serve. This is the chosen model, or
// else another model of the client's alias that the engine serves. Before a reload, the alias may have led to
// that model.
func modelAt(q *request, only *fleet.Endpoint, chosen string) string {
	a := q.aliases[q.alias]
	if a == nil || only.Member.Serves(chosen) {
		return chosen
	}
	for _, t := range a.To { // includes models without a weight, which may have had one before
		if only.Member.Serves(t.Model) {
			return t.Model
		}
	}
	if a.Fallback != "" && only.Member.Serves(a.Fallback) {
		return a.Fallback
	}
	return chosen
}

// stickyKey says which requests of an alias use one model: the requests of one session of a client, or else
// of one client key. Without a session and a key, the model is drawn for each request.
func stickyKey(q *request) string {
	key := ""
	if q.key != nil {
		key = q.key.Lasting
	}
	switch {
	case q.session.id != "":
		return "session " + key + "\x00" + q.session.id
	case key != "":
		return "key " + key
	}
	return "request " + q.id
}

// aliasEntry returns the entry of an alias in the list of models, nil while the alias leads to no usable
// model.
func aliasEntry(a *config.Alias, of *fleet.Fleet, local string) []byte {
	most := 0
	found := false
	for _, model := range a.Models() {
		if !usable(of, model, local) {
			continue
		}
		found = true
		for _, e := range of.Endpoints() {
			if n := e.Member.Facts.MaxModelLen; n > 0 && e.Member.Serves(model) && (most == 0 || n < most) {
				most = n
			}
		}
	}
	if !found {
		return nil
	}
	return openai.ModelEntry(a.Name, most)
}
