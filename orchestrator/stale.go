package orchestrator

import (
	"context"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// A kept connection may end under a request that has just come on it: an engine that stood still for longer
// than it keeps idle connections ends them first when it goes on (uvloop runs timers before it reads). That
// is no failure of the engine, which is not blamed, and no second opinion of the request.
//
// Whether the request was read cannot be known: a proxy may have ended the connection behind it. So it is not
// sent again as it is, since transfer params are good for one use: another attempt has an id and a prefill of
// its own. An engine that ended under the request breaks off in the same way, and is told from one that lives
// by a question on a fresh connection.

// staleKind is the kind of such a failure.
const staleKind = "stale"

// stale reports whether f, nil for none, is a kept connection that ended, of an engine that lives, and makes
// that its kind.
func (q *request) stale(ctx context.Context, f *failure) bool {
	if f == nil || f.kind != "broken" || !q.o.grewOld(ctx, q.o.fleet.Endpoint(f.at), f.err) {
		return false
	}
	f.kind = staleKind
	return true
}

// grewOld reports whether err is of a kept connection that ended, of an engine that lives.
func (o *Orchestrator) grewOld(ctx context.Context, to *fleet.Endpoint, err error) bool {
	return engine.Stale(err) && to != nil && !o.dead(ctx, to)
}
