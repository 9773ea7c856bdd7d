package fleet

import (
	"fmt"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Two replicas may have an adapter of the same name from different paths. Nothing proves that the weights
// are the same, so the two replicas hand over no requests for the adapter. Only the time of such requests
// would show this, so it is a state.

// withoutFolders returns the roots of adapters without the folders that they lie in.
func withoutFolders(roots map[string]string, pool *config.Pool) map[string]string {
	if len(pool.AdapterFolders) == 0 || len(roots) == 0 {
		return roots
	}
	out := make(map[string]string, len(roots))
	for name, root := range roots {
		out[name] = pool.AdapterRoot(root)
	}
	return out
}

// otherWeights says which adapters of a replica have other weights on one of others, the replicas of the
// other pool, "" for none.
func otherWeights(e *Endpoint, others []*Endpoint) string {
	var found []string
	for _, name := range e.Member.Facts.Adapters {
		for _, other := range others {
			if planner.OtherWeights(&e.Member, &other.Member, name) != "" {
				found = append(found, fmt.Sprintf("%s: %s here, %s at %s", name,
					e.Member.Facts.AdapterRoots[name], other.Member.Facts.AdapterRoots[name], other.Member.ID))
				break
			}
		}
	}
	const most = 4 // adapters are named
	if more := len(found) - most; more > 0 {
		found = append(found[:most], fmt.Sprintf("and %d more", more))
	}
	if len(found) == 0 {
		return ""
	}
	return "clients that are served here get other weights than at the other replicas; requests for an " +
		"adapter are not handed over between them: " + strings.Join(found, "; ")
}
