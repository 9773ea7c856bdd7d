package orchestrator

import (
	"context"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// dead asks an engine whether it still works.
func (e *env) dead(ctx context.Context, to *fleet.Endpoint) bool {
	err := to.Works(ctx)
	e.fleet.Failed(to.Member.ID, err)
	return err != nil
}

// orStale returns f, nil for none, unless it is a kept connection that ended, of an engine that lives: then
// it returns a failure of the kind kindStale.
//
// A kept connection may end under a request that has just come on it: an engine that stood still for longer
// than it keeps idle connections ends them first when it goes on (uvloop runs timers before it reads). That
// is no failure of the engine, which is not blamed, and no second opinion of the request.
//
// Whether the request was read cannot be known: a proxy may have ended the connection behind it. So it is not
// sent again as it is, since transfer params are good for one use: another attempt has an id and a prefill of
// its own. An engine that ended under the request breaks off in the same way, and is told from one that lives
// by a question on a fresh connection.
func (e *env) orStale(ctx context.Context, f *failure) *failure {
	if f == nil || f.kind != kindBroken || !e.grewOld(ctx, e.fleet.Endpoint(f.at), f.err) {
		return f
	}
	return refuse(kindStale, f.site)
}

// grewOld reports whether err is of a kept connection that ended, of an engine that lives.
func (e *env) grewOld(ctx context.Context, to *fleet.Endpoint, err error) bool {
	return engine.Stale(err) && to != nil && !e.dead(ctx, to)
}
