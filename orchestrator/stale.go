package orchestrator

import (
	"context"

	"tandem/internal/engine"
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

// stale reports whether f is a kept connection that ended, of an engine that lives.
func (q *request) stale(ctx context.Context, f *failure) bool {
	if f.kind != "broken" || !engine.Stale(f.err) {
		return false
	}
	to := q.o.fleet.Endpoint(f.at)
	return to != nil && !q.dead(ctx, to)
}
