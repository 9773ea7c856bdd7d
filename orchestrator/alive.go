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

// orStale changes a failure into kindStale if a kept connection ended and its engine lives. It returns all
// other failures, and nil, unchanged.
//
// A kept connection may end just when a new request uses it. For example, an engine stood still for longer
// than it keeps idle connections. When the engine continues, it first closes them, because uvloop runs timers
// before it reads. This is no failure of the engine: the engine is not blamed, and the failure is no second
// opinion about the request.
//
// The router cannot know whether the engine read the request, because a proxy may have ended the connection.
// So the request is not sent again with the same transfer params, which are good for one use. The next
// attempt has its own id and its own prefill. An engine that dies under a request breaks the connection in
// the same way. A question on a new connection shows whether the engine lives.
func (e *env) orStale(ctx context.Context, f *failure) *failure {
	if f == nil || f.kind != kindBroken || !e.grewOld(ctx, e.fleet.Endpoint(f.at), f.err) {
		return f
	}
	return refuse(kindStale, f.site)
}

// grewOld reports whether err is the end of a kept connection whose engine lives.
func (e *env) grewOld(ctx context.Context, to *fleet.Endpoint, err error) bool {
	return engine.Stale(err) && to != nil && !e.dead(ctx, to)
}
